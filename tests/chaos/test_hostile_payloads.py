"""Hostile payloads written straight into Redis: no process ends, no foreign code runs, all finds its end."""

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
from tests.chaos.hostile import CANARY, Payload, body, lay_canary, payloads, vandalise
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes


def write_all(client: Redis, keys: Keys, written: Iterable[Payload]) -> None:
    pipeline = client.pipeline(transaction=False)
    for payload in written:
        payload.write(pipeline, keys)
        if len(pipeline.command_stack) > 2_000:
            pipeline.execute()
    pipeline.execute()


def look_at_all(written: Sequence[Payload]) -> Counter[State]:
    """Do what an administrator's pages do: each job by its id, every place page by page, the counts."""
    inspection, states = get_store().lookup(0), Counter[State]()
    queues = sorted({payload.queue for payload in written})
    for payload in written:
        # Ids of another length cannot be asked for: a text that is not an id is not one.
        found = inspection.find(payload.raw_id, queue=payload.queue, member=payload.member)
        states[found.state] += 1
        repr(found)
        inspection.dead_letter(payload.raw_id)
    for state in (State.SCHEDULED, State.READY, State.CLAIMED, State.DEAD):
        for queue in queues if state in (State.SCHEDULED, State.READY) else [""]:
            cursor, rows = None, 0
            while (page := inspection.page(state, queues=[queue], cursor=cursor, count=250)).rows:
                cursor, rows = (page.rows[-1].score, page.rows[-1].member), rows + len(page.rows)
                repr(page)
                assert rows <= 4 * page.total + 1_000, f"{state} {queue!r} has no end"
    assert inspection.counts().dead >= states[State.DEAD]
    return states


def act_on_all(written: Sequence[Payload]) -> None:
    """Do what an administrator's buttons do; an error is one of ours, with a sentence."""
    operations, inspection = get_store().operations(0), get_store().lookup(0)
    for payload in written:
        acts = [
            lambda one=payload: operations.reschedule(one.raw_id, delay_us=1),
            lambda one=payload: operations.move(one.raw_id, "elsewhere"),
            lambda one=payload: operations.cancel(one.raw_id),
            lambda one=payload: operations.requeue(one.raw_id, died_us=inspection.find(one.raw_id).moment_us),
            lambda one=payload: operations.discard(one.raw_id, died_us=inspection.find(one.raw_id).moment_us),
        ]
        for act in acts:
            try:
                act()
            except DelayQError as error:
                assert str(error)


def ends(client: Redis, keys: Keys, written: Sequence[Payload], ran: Counter[str]) -> Counter[str]:
    """Tell how each one ended, and which are still open."""
    known = {member[:12] for member in client.zrange(keys("leases"), 0, -1)}
    for queue in client.zrange(keys("queues"), 0, -1):
        known |= {member[:12] for member in client.zrange(keys.ready(decode_queue(queue)), 0, -1)}
    dead = set(client.zrange(keys("dead_letters"), 0, -1))
    bodies, told = set(client.hkeys(keys("jobs"))), client.hgetall(keys("attempts"))
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
            # It died in 1970.
            found["trimmed"] += 1
        elif len(payload.member) != 14 and payload.place in ("ready", "scheduled"):
            found["dropped"] += 1
        elif raw_id in bodies and AttemptHistory.unpack(told.get(raw_id)).ended:
            found["put back"] += 1
        else:
            found[f"lost: {payload.kind}" if raw_id not in bodies else f"open: {payload.kind} nowhere"] += 1
    return found


def drained(processes: Processes, client: Redis, written: Sequence[Payload], *, patience: float) -> Counter[str]:
    seen = Counter[str]()

    def look() -> bool:
        seen.clear()
        seen.update(ends(client, processes.keys, written, Counter(run["id"] for run in processes.runs())))
        return not any(end.startswith("open") for end in seen)

    try:
        processes.until(look, what="all of it to find its end", patience=patience)
    except AssertionError as error:
        error.add_note(f"{dict(seen)}")
        raise
    return seen


def unhurt(*commands: Command) -> None:
    for command in commands:
        assert command.running
        for word in ("this is a bug", "Exception in thread", "Fatal Python error", "FORGED\x1b", "\nFORGED"):
            assert word not in command.output, command.output[max(0, command.output.index(word) - 3_000) :][:6_000]


def trial(processes: Processes, client: Redis, seed: int, count: int, *, patience: float) -> Counter[str]:
    written = list(payloads(seed, count))
    assert {payload.kind for payload in written} >= {"name", "text", "pickled", "option", "lease", "dead", "mutated"}
    write_all(client, processes.keys, written)
    look_at_all(written)
    client.flushall()
    processes.configure(LEASE=2, TASK_MODULES=[lay_canary(processes.folder)])
    commands = [processes.dispatcher(), processes.worker()]
    (processes.folder / "armed").touch()
    processes.until(lambda: len(processes.events("armed")) == 2, what="both to be watched")
    innocent = []
    for at in range(0, count, 100):
        write_all(client, processes.keys, written[at : at + 100])
        vandalise(client, processes.keys, Random(seed + at))
        innocent += enqueue_many([tasks.record.job("innocent"), tasks.record.after(0.1).job("innocent")])
    found = drained(processes, client, written, patience=patience)
    processes.until_gone(innocent)
    unhurt(*commands)
    runs = Counter(run["id"] for run in processes.runs() if run["args"] == ["innocent"])
    assert runs == {job.id: 1 for job in innocent}
    assert processes.events("canary") == []
    assert processes.events("foreign") == []
    look_at_all(written)
    act_on_all(written)
    assert [command.end() for command in commands] == [0, 0]
    assert set(found) <= {"dead", "ran", "dropped", "put back", "trimmed"}, found
    assert found.total() == count
    return found


def test_1_000_hostile_payloads_all_end(processes: Processes, client: Redis, seed: int) -> None:
    found = trial(processes, client, seed, 1_000, patience=400)
    # Chance decides how many; none would mean that a kind of end was not met.
    assert found["dead"] > 100 and found["put back"] > 20


@pytest.mark.slow
def test_10_000_hostile_payloads_all_end(
    processes: Processes, client: Redis, seed: int, tell: Callable[[str], None]
) -> None:
    tell(str(dict(trial(processes, client, seed, 10_000, patience=2_000))))


def test_audit_hook_detects_foreign_code(processes: Processes, client: Redis) -> None:
    """A trial whose watch is blind proves nothing."""
    module = lay_canary(processes.folder)
    (processes.folder / "careless.py").write_text(
        "import importlib, os, pickle\nfrom django_delayq import delayed_task\n\n"
        "@delayed_task\ndef careless(name):\n    importlib.import_module(name).fire()\n    os.system('true')\n"
        "    eval('1')\n    pickle.loads(b'cfractions\\nFraction\\n.')\n"
    )
    processes.configure(TASK_MODULES=[module, "careless"])
    worker = processes.worker()
    # It knows the queue from then on.
    processes.until_gone([tasks.record.enqueue()])
    (processes.folder / "armed").touch()
    processes.until(lambda: processes.events("armed"), what="it to be watched")
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
