"""Hostile payloads, written directly into Redis: no process ends, no foreign code runs, and each payload ends."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.exceptions import DelayQError
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import to_text
from django_delayq.job.job import State
from django_delayq.store.keys import Keys, decode_queue
from django_delayq.store.store import get_store
from tests.chaos.records.hostile import CANARY, Payload, body, corrupt_shared_records, payloads, write_canary
from tests.inspection import inspection
from tests.one_by_one import one_by_one
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes

# The hook sees an import only of what is not imported yet.
pytestmark = pytest.mark.usefixtures("new_interpreters")


def write_all(client: Redis, keys: Keys, written: Iterable[Payload]) -> None:
    pipeline = client.pipeline(transaction=False)
    for payload in written:
        payload.write(pipeline, keys)
        if len(pipeline.command_stack) > 2_000:
            pipeline.execute()
    pipeline.execute()


def read_all(written: Sequence[Payload]) -> Counter[State]:
    """Read what the admin's pages read: each job by its id, every list page by page, and the counts."""
    lookup, states = inspection(), Counter[State]()
    queues = sorted({payload.queue for payload in written})
    for payload in written:
        # The API accepts ids of other lengths as raw ids only, not as text.
        found = lookup.find(payload.raw_id, queue=payload.queue, member=payload.member)
        states[found.state] += 1
        repr(found)
        lookup.dead_letter(payload.raw_id)
    for state in (State.SCHEDULED, State.READY, State.CLAIMED, State.DEAD):
        for queue in queues if state in (State.SCHEDULED, State.READY) else [""]:
            cursor, rows = None, 0
            while (page := lookup.page(state, queues=[queue], cursor=cursor, count=250)).rows:
                cursor, rows = (page.rows[-1].score, page.rows[-1].member), rows + len(page.rows)
                repr(page)
                assert rows <= 4 * page.total + 1_000, f"{state} {queue!r} has no end"
    assert lookup.counts().dead >= states[State.DEAD]
    return states


def operate_on_all(written: Sequence[Payload]) -> None:
    """Call what the admin's buttons call. An error must be a DelayQError with a message."""
    operations, lookup = one_by_one(), get_store().lookup(0)
    for payload in written:
        acts = [
            lambda one=payload: operations.reschedule(one.raw_id, delay_us=1),
            lambda one=payload: operations.move(one.raw_id, "elsewhere"),
            lambda one=payload: operations.cancel(one.raw_id),
            lambda one=payload: operations.requeue(one.raw_id, died_us=lookup.find(one.raw_id).moment_us),
            lambda one=payload: operations.discard(one.raw_id, died_us=lookup.find(one.raw_id).moment_us),
        ]
        for act in acts:
            try:
                act()
            except DelayQError as error:
                assert str(error)


def count_ends(processes: Processes, client: Redis, written: Sequence[Payload]) -> Counter[str]:
    """Count how each payload ended, and which have not ended."""
    keys = processes.keys
    known = {member[:12] for member in client.zrange(keys("leases"), 0, -1)}
    for queue in client.zrange(keys("queues"), 0, -1):
        known |= {member[:12] for member in client.zrange(keys.ready(decode_queue(queue)), 0, -1)}
    dead = set(client.zrange(keys("dead_letters"), 0, -1))
    bodies, attempts = set(client.hkeys(keys("jobs"))), client.hgetall(keys("attempts"))
    # Last: a job that ended meanwhile has run before it was gone from Redis.
    ran = Counter(run["id"] for run in processes.runs())
    found = Counter[str]()
    for payload in written:
        raw_id = payload.raw_id
        if raw_id in dead:
            found["dead"] += 1
        elif raw_id in known:
            found[f"open: {payload.kind}"] += 1
        elif ran[to_text(raw_id, 0)]:
            found["ran"] += 1
        elif payload.place == "dead_letters" and payload.score < 1e15:
            # The time of its death is in 1970.
            found["trimmed"] += 1
        elif len(payload.member) != 14 and payload.place in ("ready", "scheduled"):
            found["dropped"] += 1
        elif raw_id in bodies and AttemptHistory.unpack(attempts.get(raw_id)).ended:
            found["put back"] += 1
        else:
            found[f"lost: {payload.kind}" if raw_id not in bodies else f"open: {payload.kind} nowhere"] += 1
    return found


def wait_for_ends(processes: Processes, client: Redis, written: Sequence[Payload], *, patience: float) -> Counter[str]:
    seen = Counter[str]()

    def all_ended() -> bool:
        seen.clear()
        seen.update(count_ends(processes, client, written))
        # A job that goes from place to place while they are read looks lost; a lost one stays so.
        return not any(end.startswith(("open", "lost")) for end in seen)

    try:
        processes.until(all_ended, what="all payloads to end", patience=patience)
    except AssertionError as error:
        error.add_note(f"{dict(seen)}")
        raise
    return seen


def check_output(*commands: Command) -> None:
    for command in commands:
        assert command.running
        for word in ("this is a bug", "Exception in thread", "Fatal Python error", "FORGED\x1b", "\nFORGED"):
            assert word not in command.output, command.output[max(0, command.output.index(word) - 3_000) :][:6_000]


def check_payloads(processes: Processes, client: Redis, seed: int, count: int, *, patience: float) -> Counter[str]:
    written = list(payloads(seed, count))
    assert {payload.kind for payload in written} >= {"name", "text", "pickled", "option", "lease", "dead", "mutated"}
    write_all(client, processes.keys, written)
    read_all(written)
    client.flushall()
    processes.configure(LEASE=2, UNKNOWN_TASK_TTL=0, TASK_MODULES=[write_canary(processes.folder)])
    commands = [processes.dispatcher(), processes.worker()]
    (processes.folder / "enabled").touch()
    processes.until(lambda: len(processes.events("enabled")) == 2, what="both audit hooks")
    ordinary = []
    for at in range(0, count, 100):
        write_all(client, processes.keys, written[at : at + 100])
        corrupt_shared_records(client, processes.keys, Random(seed + at))
        ordinary += enqueue_many([tasks.record.job("ordinary"), tasks.record.after(0.1).job("ordinary")])
    found = wait_for_ends(processes, client, written, patience=patience)
    processes.until_gone(ordinary)
    check_output(*commands)
    runs = Counter(run["id"] for run in processes.runs() if run["args"] == ["ordinary"])
    assert runs == {job.id: 1 for job in ordinary}
    assert processes.events("canary") == []
    assert processes.events("foreign") == []
    read_all(written)
    operate_on_all(written)
    assert [command.end() for command in commands] == [0, 0]
    assert set(found) <= {"dead", "ran", "dropped", "put back", "trimmed"}, found
    assert found.total() == count
    return found


def test_1_000_hostile_payloads_all_end(processes: Processes, client: Redis, seed: int) -> None:
    found = check_payloads(processes, client, seed, 1_000, patience=400)
    # They depend on the seed: 733 to 785 with six of them. Some are made to be put back, with each seed.
    assert found["dead"] > 100 and found["put back"] > 0


@pytest.mark.slow
def test_10_000_hostile_payloads_all_end(
    processes: Processes, client: Redis, seed: int, print_now: Callable[[str], None]
) -> None:
    print_now(str(dict(check_payloads(processes, client, seed, 10_000, patience=2_000))))


def test_audit_hook_detects_foreign_code(processes: Processes, client: Redis) -> None:
    """Prove that the audit hook works, since the other tests rely on its silence."""
    module = write_canary(processes.folder)
    (processes.folder / "careless.py").write_text(
        "import importlib, os, pickle\nfrom django_delayq import delayed_task\n\n"
        "@delayed_task\ndef careless(name):\n    importlib.import_module(name).fire()\n    os.system('true')\n"
        "    eval('1')\n    pickle.loads(b'cfractions\\nFraction\\n.')\n"
    )
    processes.configure(TASK_MODULES=[module, "careless"])
    worker = processes.worker()
    # From here on the worker knows the queue.
    processes.until_gone([tasks.record.enqueue()])
    (processes.folder / "enabled").touch()
    processes.until(lambda: processes.events("enabled"), what="the audit hook")
    write_all(client, processes.keys, [_careless()])
    client.rpush(processes.keys("notify"), 1)
    processes.until(lambda: len(processes.events("foreign")) >= 4, what="four events")
    seen = {event["event"] for event in processes.events("foreign")}
    assert seen == {"exec", "os.system", "pickle.find_class"}
    assert [event["what"] for event in processes.events("canary")] == ["imported", "called"]
    assert worker.end() == 0


def _careless() -> Payload:
    text = body("careless.careless", f'[["{CANARY}"]]'.encode())
    return Payload(number=0, kind="name", place="ready", member=b"\xfe" + bytes(11) + b"\x64\0", score=0, body=text)
