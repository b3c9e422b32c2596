"""Keys: every Redis key name, its type and its meaning. Only this file builds key names.

A key is `<prefix>:{<tag of the shard>}:<noun>`. The hash tag makes a shard one slot of a cluster. The prefix is outside
the tag, so the ACL pattern `~<prefix>:*` covers every key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from django_delayq.store.slots import hash_tag

#: noun -> (type, what it holds). A job that has not ended is in exactly one of scheduled, ready, recovered, parked,
#: leases and dead_letters. "member" is id, priority byte and flags byte (14 bytes).
CATALOGUE: dict[str, tuple[str, str]] = {
    "scheduled": (
        "zset",
        "per queue: member -> due time (µs); written by enqueue, retry and reclaim; promote removes from it",
    ),
    "ready": (
        "zset",
        "per queue: member -> rank; written by promote, enqueue and release; settle_and_claim removes from it",
    ),
    "recovered": (
        "zset",
        "per queue: member -> rank, of ready jobs whose last attempt crashed; written by settle_and_claim and reclaim; "
        "settle_and_claim removes one for a process of its own",
    ),
    "parked": (
        "zset",
        "per queue: member -> rank, of ready jobs that a limit, or the pause of their task, keeps from beginning; "
        "settle_and_claim writes it; let_in makes them ready",
    ),
    "leases": (
        "zset",
        "member + token -> end of the lease (µs); written by settle_and_claim, which removes it, as reclaim does",
    ),
    "claim_records": (
        "hash",
        "id -> token, time of the claim (µs), rank, 1 if it was asked to stop plus 2 if it was claimed before it was "
        "due, until when (µs) if it was asked, its due time (µs) if that was ahead, its progress; `leases` is "
        "authoritative if the two disagree",
    ),
    "unconfirmed": (
        "set",
        "leases of claims made behind a blocking pop, until their worker confirms them; goes with the lease",
    ),
    "exchanges": (
        "hash",
        "worker -> number, lost leases and claims of its last exchange; goes with its entry in workers",
    ),
    "jobs": (
        "hash",
        "id -> body, of which scripts read the name of the task only, while a task is paused; goes with the job",
    ),
    "attempts": ("hash", "id -> ended attempts, of jobs that failed or crashed; goes with the job"),
    "job_extras": (
        "hash",
        "id -> flags, digest of the job's unique or throttled key, first call of a series, its limits and its cost, "
        "weight and digest of its tenant; goes with the job",
    ),
    "limit_rules": ("hash", "digest of a limit's name -> its rule; each worker and dispatcher that starts writes it"),
    "limit_jobs": (
        "zset",
        "an entry of score 0 for each job that waits for a limit, was let in, or runs under it; the layout is in "
        "_limits.lua; goes when the job leaves its place",
    ),
    "limit_times": (
        "zset",
        "limit -> its time (µs), which the starts of its jobs move on; 1 and a limit -> until when (µs) nobody begins; "
        "promote removes what has passed",
    ),
    "limit_turns": (
        "hash",
        "limit -> each fair queue with parked jobs, and the tenant whose job was let in last; let_in removes it when "
        "no job is parked",
    ),
    "next_let_in": (
        "zset",
        "limit that jobs wait for -> when (µs) the dispatcher looks at it; let_in removes it when no job waits for it",
    ),
    "outside_slots": (
        "zset",
        "limit and what stands for code outside a job that has a slot -> when (µs) it is given back at the latest",
    ),
    "waiting_for": ("hash", "id of a parked job -> the limit that it waits for; goes when it leaves parked"),
    "claim_limits": ("hash", "id of a claimed job -> the limits of which it has a slot; goes with its claim"),
    "schedules": (
        "hash",
        "id of a recurring schedule -> its state, its outcomes and its definition; the layout is in _schedules.lua; "
        "goes with delete_schedules, or with declare_schedules if it is not declared any more",
    ),
    "next_planting": (
        "zset",
        "id of a recurring schedule -> when (µs) a dispatcher plants its next job; not while it is paused, nor after "
        "its last occurrence",
    ),
    "declared_by": (
        "string",
        "who declared recurring schedules last: dispatcher (8 bytes), its start (8, µs), digest of what it declared "
        "(16), then the id of each of these schedules (8)",
    ),
    "paused_tasks": ("hash", "digest of a task -> `<moment in µs> <who paused it>`, a byte 255 and its name"),
    "replicated": (
        "string",
        "1, written behind each call that waits for replicas, so that WAIT has a write to count; with WAIT_REPLICAS",
    ),
    "tenant_jobs": (
        "zset",
        "an entry of score 0 for each waiting job of a tenant, sorted by tenant, priority and rank; the layout is in "
        "_turns.lua; goes when the job leaves its place",
    ),
    "turns": (
        "zset",
        "an entry of score 0 for each tenant and priority of a fair queue, sorted by the turn; the layout is in "
        "_turns.lua; goes when the tenant has no ready jobs and its tag has passed",
    ),
    "tenants": (
        "hash",
        "tenant and priority -> its tag, while it has an entry in turns; queue and priority -> its virtual time, which "
        "stays; tenant -> who paused it, and its name, until resume_tenant; the layout is in _turns.lua",
    ),
    "dead_letters": ("zset", "id -> time of death (µs); requeue, discard and promote remove from it"),
    "dead_bodies": ("hash", "id -> member, attempts, extras and body of a dead letter; goes with its entry there"),
    "dead_bytes": ("string", "bytes of all of dead_bodies, for DEAD_MAX_BYTES; written by each writer of those"),
    "dead_by_group": (
        "zset",
        "an entry of score 0 for each dead letter: its error group (12 bytes), time of death (8), id; sorted by these; "
        "goes with its entry in dead_letters",
    ),
    "groups_of_dead": ("hash", "id of a dead letter -> its error group (12 bytes); goes with its entry there"),
    "error_groups": (
        "hash",
        "error group -> when a dead letter of it came first and last (µs, 8 bytes each), and its label; at most 1,251; "
        "the layout is in _dead_letters.lua; one without dead letters is forgotten after a week, if others come",
    ),
    "spreads": (
        "hash",
        "name of a spread -> its start (µs), length (µs), places, how many are taken, and its callers; take_places "
        "writes it, until its last caller ends; at most 100",
    ),
    "unique_keys": ("hash", "digest of a unique key -> member of the job that holds it; goes with the job"),
    "throttles": ("hash", "digest of a throttled key -> id of the job of the first call; goes with its window"),
    "throttle_ends": (
        "zset",
        "digest of a throttled key -> end of its window (µs); written by enqueue; cancel of that job removes it, and "
        "promote once it is over",
    ),
    "queues": (
        "zset",
        "queue -> when (µs) a job of it was last claimed, held or, to the minute, made ready; promote removes it ten "
        "minutes later",
    ),
    "queues_version": ("string", "a number that changes when a name enters or leaves queues"),
    "next_due": ("zset", "queue -> its first due time (µs); every script that changes scheduled writes it"),
    "cancelled": (
        "zset",
        "id + token of the caller that cancelled the job -> when (µs), so that the call is repeatable; the last 10,000",
    ),
    "withdrawn": ("zset", "id -> when (µs) it was cancelled, maybe before its enqueue arrived; the last 10,000"),
    "workers": ("zset", "worker -> last seen (µs); removed when it leaves, or after an hour"),
    "dispatchers": ("zset", "dispatcher -> last seen (µs); removed when it leaves, or after an hour"),
    "worker_names": ("hash", "worker -> its host and process, for people; goes with its entry in workers"),
    "process_reports": ("hash", "worker or dispatcher -> its last status report (JSON); goes with its entry there"),
    "quiet_workers": ("hash", "worker -> who asked it to claim no more jobs; goes with its entry in workers"),
    "paused": (
        "hash",
        "key of a queue's ready set -> `<moment in µs> <who paused it>`, a byte 255 and its end (µs) if it has one; "
        "resume and promote remove it",
    ),
    "pause_ends": ("zset", "queue -> when (µs) its pause ends; goes with its entry in paused"),
    "metrics": (
        "hash",
        "dimension (all jobs, a queue, a task) -> its last hour, a line per minute; at most 1,000 dimensions",
    ),
    "metrics_by_hour": (
        "hash",
        "hour and dimension -> its row, without the newest minute of its series; the last week, 50 KB a dimension; at "
        "most 60,000 rows (18 MB); report writes it",
    ),
    "totals": (
        "hash",
        "dimension -> the minute of its series that was added last, and its row since the shard began; at most 1,000; "
        "report writes it, and forgets one without a series if there are more",
    ),
    "enqueued": (
        "hash",
        "queue and task, each with its length in front -> how many jobs of them were stored; '' -> those of further "
        "ones, beyond 2,000; report moves those of a task without a total there, if there are more",
    ),
    "releases": (
        "hash",
        "release -> when (µs) a worker or dispatcher of it reported first; at most 50; report writes it",
    ),
    "finished": (
        "list",
        "chunks of the last endings of jobs, oldest first, each with how many endings and bytes came until its end; "
        "report writes it; at most FINISHED_KEPT endings of all shards, and 200 bytes for each, beside one chunk",
    ),
    "results": ("list", "per job that keeps its result: one record of its end; expires"),
    "next_promotion": ("string", "µs of the next promotion; only promote writes it"),
    "no_reclaim_before": (
        "string",
        "µs before which no lease is reclaimed after an outage; only promote writes it",
    ),
    "notify_dispatcher": ("list", "at most one element: the dispatcher must promote earlier than it planned"),
    "notify": ("list", "at most one element: jobs are ready; one per queue, and one without a queue for all queues"),
    "notify_sent_on": (
        "list",
        "at most one element: a worker of a queue filter consumed a `notify`, maybe of a queue that it does not serve; "
        "only workers of all queues listen to it",
    ),
    "notify_worker": (
        "list",
        "per worker: at most one element: it sends a heartbeat at once; stop and quiet write it for a minute",
    ),
    "forwarded": ("stream", "jobs that a forwarding pool handed on; its readers trim it"),
    "shards": (
        "string",
        "the layout: number of shards over which the jobs are spread, and over which they were; its text is in "
        "job/layout.py; set_layout writes it in each shard",
    ),
    "leaving_schedules": (
        "hash",
        "id of a recurring schedule that moves to another shard -> its record, until that shard has it; written by "
        "hand_over_schedule",
    ),
    "lingering": (
        "hash",
        "routing value that belongs to another shard by now -> number of the count that found something of it here; "
        "the layout is in _layout.lua; count_lingering removes it",
    ),
    "arrivals": (
        "zset",
        "id and time of death of a dead letter, or id and version of a schedule, that came from another shard -> when "
        "(µs), so that it does not come twice; the last 10,000",
    ),
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The key names of one shard."""

    prefix: str
    shard: int

    def __call__(self, noun: str) -> str:
        """Return the key of a noun of the catalogue that is not per queue."""
        return f"{self.prefix}:{{{hash_tag(self.shard)}}}:{noun}"

    def scheduled(self, queue: str) -> str:
        """Return the key of a queue's scheduled jobs."""
        return self(f"scheduled:{encode_queue(queue)}")

    def ready(self, queue: str) -> str:
        """Return the key of a queue's ready jobs."""
        return self(f"ready:{encode_queue(queue)}")

    def recovered(self, queue: str) -> str:
        """Return the key of a queue's recovered jobs."""
        return self(f"recovered:{encode_queue(queue)}")

    def parked(self, queue: str) -> str:
        """Return the key of a queue's parked jobs."""
        return self(f"parked:{encode_queue(queue)}")

    def notify(self, queue: str) -> str:
        """Return the key of a queue's notification."""
        return self(f"notify:{encode_queue(queue)}")

    def of_queue(self, queue: str) -> tuple[str, str, str]:
        """Return the keys with which a job enters a queue: scheduled, ready, notify."""
        return self.scheduled(queue), self.ready(queue), self.notify(queue)

    def served(self, queue: str) -> tuple[str, str, str, str]:
        """Return the keys with which workers serve a queue: ready, notify, recovered, parked."""
        return self.ready(queue), self.notify(queue), self.recovered(queue), self.parked(queue)

    def settled(self, queue: str) -> tuple[str, str, str, str]:
        """Return the keys with which a claimed job returns to a queue: scheduled, ready, notify, parked."""
        return (*self.of_queue(queue), self.parked(queue))

    def places(self, queue: str) -> tuple[str, str, str, str]:
        """Return the keys of a queue's waiting places: scheduled, ready, recovered, parked."""
        return self.scheduled(queue), self.ready(queue), self.recovered(queue), self.parked(queue)

    def named(self, queue: str) -> dict[str, str]:
        """Return all keys of a queue, in this order, by the names that scripts have for them."""
        return {
            "scheduled": self.scheduled(queue),
            "ready": self.ready(queue),
            "queue_notify": self.notify(queue),
            "recovered": self.recovered(queue),
            "parked": self.parked(queue),
        }

    def notifications(self, queues: Sequence[str]) -> list[str]:
        """Return the keys to which a worker of these queues listens; no queues: a worker of all."""
        return [self.notify(queue) for queue in queues] or [self("notify"), self("notify_sent_on")]

    def notify_worker(self, worker_id: bytes) -> str:
        """Return the key of one worker's own notification."""
        return self(f"notify_worker:{worker_id.hex()}")

    def results(self, raw_id: bytes) -> str:
        """Return the key of a job's kept result."""
        return self(f"results:{raw_id.hex()}")


@lru_cache(maxsize=4096)
def encode_queue(queue: str) -> str:
    """Percent-encode a queue's name: every text is a legal name, and none can add a part to the key."""
    return quote(queue, safe="", errors="surrogatepass")


def decode_queue(encoded: bytes) -> str:
    """Return the name of a queue from the end of its keys, which is how scripts store it."""
    name = unquote_to_bytes(encoded)
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # The name was edited manually; its jobs still count.
        return name.decode("utf-8", "backslashreplace")
