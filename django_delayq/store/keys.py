"""Keys: every Redis key name, its type and its meaning. Only this file builds key names.

`<prefix>:{<shard>}:<noun>`: the hash tag makes a shard one cluster slot; the prefix stays outside it, so that the ACL
pattern
`~<prefix>:*` covers everything.
"""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

#: noun -> (type, what it holds). A job that has not ended is in exactly one of schedule, ready, recovered, leases,
#: dead_letters.
CATALOGUE: dict[str, tuple[str, str]] = {
    "scheduled": (
        "zset",
        "per queue: member -> due (µs); enqueue, retry and reclaim write it; promote takes out",
    ),
    "ready": ("zset", "per queue: member -> rank; promote, enqueue and release write it; exchange takes out"),
    "recovered": (
        "zset",
        "per queue: member -> rank, of ready jobs whose last attempt crashed; exchange and reclaim write it; exchange "
        "takes out for a process of its own",
    ),
    "leases": ("zset", "member + token -> lease end (µs); exchange writes it; settling and reclaim take out"),
    "claim_records": (
        "hash",
        "id -> token, started (µs), rank, stop asked; beside each lease, which is right where they differ",
    ),
    "unconfirmed": (
        "set",
        "leases of claims made behind a blocking pop, until their worker says that it has them; goes with the lease",
    ),
    "exchanges": (
        "hash",
        "worker -> number, lost leases, claims of its last exchange; goes with its entry in workers",
    ),
    "jobs": ("hash", "id -> body, opaque to every script; goes with the job"),
    "attempts": ("hash", "id -> ended attempts, of jobs that failed or crashed; goes with the job"),
    "job_extras": (
        "hash",
        "id -> what a noted job is bound to: a byte of bits, its key's digest; goes with the job",
    ),
    "dead_letters": ("zset", "id -> time of death (µs); requeue, discard and promote's trim take out"),
    "dead_bodies": ("hash", "id -> member, attempts, extras and body of a dead letter"),
    "dead_bytes": ("string", "bytes of all of dead_bodies, for DEAD_MAX_BYTES; who writes those counts them"),
    "unique_keys": ("hash", "digest of a key -> member of the job that holds it; goes with the job"),
    "queues": (
        "zset",
        "queue -> when (µs) a job of it was last made ready, claimed or held; promote forgets it ten minutes later",
    ),
    "queues_version": ("string", "another number whenever a name enters or leaves queues"),
    "next_due": ("zset", "queue -> first due time in its schedule (µs); whatever changes a schedule writes it"),
    "cancelled": (
        "zset",
        "id + token of who cancelled it -> when (µs), so that the call can be repeated; the last 10,000",
    ),
    "withdrawn": ("zset", "id -> when (µs) it was cancelled, maybe before its enqueue arrived; the last 10,000"),
    "workers": ("zset", "worker -> last seen (µs); it leaves, or is trimmed after an hour"),
    "dispatchers": ("zset", "dispatcher -> last seen (µs); it leaves, or is trimmed after an hour"),
    "worker_names": ("hash", "worker -> host and process for people; goes with its entry in workers"),
    "process_reports": ("hash", "worker or dispatcher -> what it says of itself (JSON); goes with its entry there"),
    "quiet_workers": ("hash", "worker -> who asked it to take no more jobs; goes with its entry in workers"),
    "paused": ("hash", "key of a queue's ready set -> `<moment in µs> <who paused it>`; resume takes out"),
    "metrics": (
        "hash",
        "all jobs, a queue or a task -> its last hour, a line per minute; at most 1,000",
    ),
    "results": ("list", "per job that keeps its result: one finished record; expires, and nothing else does"),
    "next_promotion": ("string", "µs when the next promotion will come; only promote writes it"),
    "no_lapse_before": ("string", "µs before which no lease lapses, after an outage of Redis; only promote writes it"),
    "notify_dispatcher": ("list", "at most one: the dispatcher should look again"),
    "notify": ("list", "at most one: work is ready; per queue, and one without a queue for workers of all queues"),
    "forwarded": ("stream", "jobs that a forwarder handed on; its readers trim it"),
    "shards": ("string", "number of shards the keys in use were spread over; in shard 0 only"),
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The key names of one shard."""

    prefix: str
    shard: int

    def __call__(self, noun: str) -> str:
        """Return the key of a noun of the catalogue that is not per queue."""
        return f"{self.prefix}:{{{self.shard}}}:{noun}"

    def scheduled(self, queue: str) -> str:
        """Return the schedule of a queue."""
        return self(f"scheduled:{encode_queue(queue)}")

    def ready(self, queue: str) -> str:
        """Return the ready set of a queue."""
        return self(f"ready:{encode_queue(queue)}")

    def recovered(self, queue: str) -> str:
        """Return the set of a queue's recovered jobs."""
        return self(f"recovered:{encode_queue(queue)}")

    def notify(self, queue: str) -> str:
        """Return the bell of a queue."""
        return self(f"notify:{encode_queue(queue)}")

    def of_queue(self, queue: str) -> tuple[str, str, str]:
        """Return schedule, ready set and bell of a queue, in this order."""
        return self.scheduled(queue), self.ready(queue), self.notify(queue)

    def waiting_places(self, queue: str) -> dict[str, str]:
        """Return where the waiting jobs of a queue are, by noun."""
        return {
            "scheduled": self.scheduled(queue),
            "ready": self.ready(queue),
            "recovered": self.recovered(queue),
        }

    def results(self, raw_id: bytes) -> str:
        """Return the key of a job's kept result."""
        return self(f"results:{raw_id.hex()}")


@lru_cache(maxsize=4096)
def encode_queue(queue: str) -> str:
    """Percent-encode a queue's name: every text is a legal name, and none can leave its place in the key."""
    return quote(queue, safe="", errors="surrogatepass")


def decode_queue(encoded: bytes) -> str:
    """Return a queue's name from the end of its keys, which is how scripts store it."""
    name = unquote_to_bytes(encoded)
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # Nobody of ours wrote that; it still counts.
        return name.decode("utf-8", "backslashreplace")
