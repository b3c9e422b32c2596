"""Encryption: with ENCRYPT on, no key of Redis holds an argument, an option, an error or a result that can be read."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from redis import Redis

from django_delayq import delayed_task, get_job
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import UnknownEncryptionKey
from django_delayq.job.body.codec import ENCRYPTED_FORMAT, SIGNED
from django_delayq.job.job import Expiry, Job, State
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.management.preflight import judge_jobs
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.worker.execution import run
from tests.factories import unsent
from tests.inspection import everything, inspection
from tests.integration.security.steps import take
from tests.sample_app import tasks
from tests.shard_apis import DAY, HOUR, ShardApis, uncounted
from tests.subprocesses import Processes, until

#: A run closes connections that other tests may have opened.
pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
#: Each is in a job of these tests, in a place of its own.
ARGUMENT, OPTION, ERROR, RESULT, LATER, CONTEXT, NOTE = SECRETS = [
    f"canary-{word}" for word in ("argument", "option", "error", "result", "later", "context", "note")
]


def readable(client: Redis) -> list[str]:
    """Return the secrets that stand in Redis."""
    stored = everything(client)
    return [secret for secret in SECRETS if secret.encode() in stored]


def work(*args: Any, fails: bool = False, **_: Any) -> str:
    if fails:
        raise ValueError(ERROR)
    return RESULT


@pytest.fixture(autouse=True)
def own_task(registered: Any, settings: Any) -> None:
    """Make the task of `ShardApis.add` fail and return as its arguments say."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "first", []
    registered({})
    delayed_task(name="tests.sample_app.tasks.noop", store_result=True)(work)


@pytest.fixture
def make(make_apis: Callable[..., ShardApis]) -> Callable[..., ShardApis]:
    """Make APIs with ENCRYPT on: `make(SIGN=True)`, `make(ENCRYPT=False)`."""
    return partial(make_apis, ENCRYPT=True)


def reclaim(apis: ShardApis) -> None:
    """Let every lease expire, and let a dispatcher judge the jobs."""
    dispatcher = Dispatcher(apis.shard, apis.promotion)
    for _ in range(3):
        # After the first jump it waits for workers that live.
        apis.clock.advance(apis.config.worker.lease_us + apis.config.dispatcher.recovery_us)
        dispatcher.promote()


def add_failing(apis: ShardApis, **options: Any) -> bytes:
    draft = apis.draft(ARGUMENT, **options)
    job = replace(draft.job, kwargs={"fails": True}, retry=replace(draft.job.retry, max_attempts=2))
    job = replace(job, context={"tenant": CONTEXT})
    return send(apis, job)


def send(apis: ShardApis, job: Job, *, delay: int | None = None) -> bytes:
    draft = unsent(job, max_payload=10_000)
    apis.enqueue(draft.rescheduled(delay_us=delay, due_us=None, called_at=apis.clock.steady()))
    return job.raw_id


@pytest.mark.parametrize(
    ("delayq", "expected"),
    [
        ({}, []),
        ({"SIGN": True}, []),
        ({"ENCRYPTION_KEYS": ["own " * 10]}, []),
        # The same steps without encryption show that the search finds what it looks for.
        ({"ENCRYPT": False}, SECRETS),
    ],
    ids=["on", "signed", "own keys", "off"],
)
def test_no_secret_is_in_redis_whatever_happens_to_a_job(
    delayq: dict[str, Any], expected: list[str], make: Callable[..., ShardApis], client: Redis
) -> None:
    apis, seen = make(**delayq), set()

    def look() -> None:
        seen.update(readable(client))

    # Enqueued, changed, moved, cancelled with a result to keep.
    first = apis.add(ARGUMENT, key=OPTION, delay=HOUR, ttl=DAY)
    look()
    assert apis.operations.reschedule(first, delay_us=0)
    assert apis.operations.move(first, "other")
    look()
    assert apis.operations.cancel(first)
    look()
    # Run, with a result.
    second = apis.add(ARGUMENT, ttl=DAY)
    assert take(apis)[1].kind is OutcomeKind.SUCCEEDED
    assert apis.inspection.find(second).result
    look()
    # Retried, dead, requeued with other arguments, dead again, discarded.
    third = add_failing(apis)
    for state in (State.READY, State.DEAD):
        take(apis)
        apis.clock.advance(HOUR)
        apis.promote()
        assert apis.inspection.find(third).state is state
        look()
    letter = apis.inspection.dead_letter(third)
    assert letter is not None and letter.job is not None
    change = {"args": [LATER], "kwargs": {"fails": True}}
    assert apis.operations.requeue(third, died_us=letter.moment_us, change=lambda job: replace(job, **change))
    look()
    # A worker that dies with it, and the dispatcher that judges.
    worker = apis.worker()
    [claim] = worker.take().claims
    worker.api.heartbeat([claim.lease], progress={claim.lease: Progress(0.5, NOTE)})
    assert apis.inspection.find(third).progress == Progress(0.5, NOTE)
    look()
    reclaim(apis)
    assert apis.inspection.find(third).attempts.crash_suspected
    look()
    assert sorted(seen) == sorted(expected)


def test_every_reader_gets_what_was_stored(make: Callable[..., ShardApis]) -> None:
    apis = make()
    waiting = apis.add(ARGUMENT, key=OPTION, delay=DAY)
    [row] = apis.inspection.page(State.SCHEDULED, queues=["default"]).rows
    assert row.job is not None and (row.raw_id, row.job.args, row.job.key) == (waiting, [ARGUMENT], OPTION)
    done = apis.add(ARGUMENT, ttl=DAY)
    take(apis)
    result = apis.inspection.find(done).result
    assert result is not None and result.value == RESULT
    failed = add_failing(apis)
    take(apis)
    apis.clock.advance(HOUR)
    apis.promote()
    claim, _ = take(apis)
    assert claim.attempts.ended == 1 and ERROR in claim.attempts.last_error
    [letter] = apis.inspection.page(State.DEAD).rows
    assert letter.raw_id == failed and letter.job is not None
    assert letter.attempts.ended == 2 and [ERROR in each["error"] for each in letter.attempts.history] == [True, True]


def test_a_plain_job_still_runs_and_an_encrypted_one_after_the_switch_is_off(make: Callable[..., ShardApis]) -> None:
    on, off = make(), make(ENCRYPT=False)
    raw_id = off.add(1)
    assert take(on)[1].kind is OutcomeKind.SUCCEEDED
    raw_id = add_failing(on)
    assert take(off)[1].kind is OutcomeKind.FAILED
    on.clock.advance(HOUR)
    off.clock.advance(HOUR)
    off.promote()
    claim, _ = take(on)
    assert claim.raw_id == raw_id and claim.attempts.ended == 1


def test_a_worker_without_the_key_leaves_the_job_to_one_that_has_it(
    make: Callable[..., ShardApis], settings: Any
) -> None:
    apis = make()
    raw_id = apis.add(ARGUMENT)
    settings.SECRET_KEY = "second"
    other = make()
    claim, outcome = take(other)
    assert (claim.raw_id, claim.job, outcome.kind) == (raw_id, None, OutcomeKind.UNKNOWN_KEY)
    assert "SECRET_KEY_FALLBACKS" in outcome.error
    found = apis.inspection.find(raw_id)
    assert found.state is State.SCHEDULED and found.job is not None and found.job.args == [ARGUMENT]
    assert "does not have" in other.inspection.find(raw_id).fault
    settings.SECRET_KEY_FALLBACKS = ["first"]
    rotated = make()
    rotated.clock.advance(DAY)
    rotated.promote()
    assert take(rotated)[1].kind is OutcomeKind.SUCCEEDED


# The dispatcher seals its entry with its own key, if it encrypts.
@pytest.mark.parametrize(("encrypts", "entries"), [(True, 1), (False, 2)])
def test_a_process_without_the_key_keeps_the_history(
    make: Callable[..., ShardApis], client: Redis, settings: Any, encrypts: bool, entries: int
) -> None:
    apis = make()
    raw_id = add_failing(apis)
    worker = apis.worker()
    [claim] = worker.take(1).claims
    worker.take(0, settle=[uncounted(claim, claim.attempts.cut_short().snoozed(), keeps_rank=True)])
    take(apis)
    settings.SECRET_KEY = "second"
    other = make(ENCRYPT=encrypts)
    for step in (take, take, lambda apis: (apis.worker().take(), reclaim(apis))):
        other.clock.advance(HOUR)
        other.promote()
        step(other)
    # The readable number of attempts counts on.
    assert other.inspection.find(raw_id).attempts.ended == 2
    found = apis.inspection.find(raw_id).attempts
    assert ERROR in found.history[0]["error"]
    assert (len(found.history), found.interruptions, found.snoozes) == (entries, 1, 1)
    assert readable(client) == []


def test_a_retry_without_the_key_keeps_the_history(make: Callable[..., ShardApis], settings: Any) -> None:
    apis = make()
    raw_id = add_failing(apis)
    take(apis)
    apis.clock.advance(HOUR)
    apis.promote()
    take(apis)
    settings.SECRET_KEY = "second"
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None and make().operations.requeue(raw_id, died_us=letter.moment_us)
    found = apis.inspection.find(raw_id).attempts
    assert found.ended == 0 and [ERROR in entry["error"] for entry in found.history] == [True, True]


def test_a_dispatcher_without_the_key_returns_the_job(make: Callable[..., ShardApis], settings: Any) -> None:
    apis = make()
    raw_id = apis.add(ARGUMENT)
    settings.SECRET_KEY = "second"
    other = make(ENCRYPT=False)
    assert other.worker().take().claims
    reclaim(other)
    found = apis.inspection.find(raw_id)
    assert found.job is not None and found.state in (State.SCHEDULED, State.READY)
    # It cannot know the policy, and the lapse counts.
    assert found.attempts.ended == 1 and found.attempts.history[-1]["ending"] == "lease expired"


def test_an_expiry_moves_inside_the_encrypted_body(
    make: Callable[..., ShardApis], client: Redis, settings: Any
) -> None:
    apis = make()
    draft = apis.draft(ARGUMENT, delay=HOUR)
    expiry = Expiry(moment_us=apis.clock.now_us + 2 * HOUR, span_us=HOUR, dead=True)
    raw_id = send(apis, replace(draft.job, expiry=expiry), delay=HOUR)
    settings.SECRET_KEY = "second"
    without = make()
    # Without the key the expiry would stay, and the job could only expire.
    with pytest.raises(UnknownEncryptionKey):
        without.operations.reschedule(raw_id, delay_us=5 * HOUR)
    settings.SECRET_KEY = "first"

    def moment() -> int:
        job = apis.inspection.find(raw_id).job
        assert job is not None and job.args == [ARGUMENT] and job.expiry is not None
        return (job.expiry.moment_us - apis.clock.now_us) // HOUR

    assert moment() == 2
    assert apis.operations.reschedule(raw_id, delay_us=4 * HOUR)
    assert moment() == 5
    apis.clock.advance(6 * HOUR)
    apis.promote()
    assert take(apis)[1].kind is OutcomeKind.EXPIRED
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None
    with pytest.raises(UnknownEncryptionKey):
        without.operations.requeue(raw_id, died_us=letter.moment_us)
    assert apis.operations.requeue(raw_id, died_us=letter.moment_us)
    assert moment() == 1
    assert readable(client) == []


def test_a_body_of_another_job_is_dead(make: Callable[..., ShardApis]) -> None:
    apis = make()
    first, second = apis.add(1, delay=HOUR), apis.add(2)
    key = apis.keys("jobs")
    apis.client.hset(key, second, apis.client.hget(key, first))
    claim, outcome = take(apis)
    assert (claim.raw_id, outcome.kind) == (second, OutcomeKind.UNREADABLE)
    assert apis.where(second) == ["dead_letters"]


def test_a_signature_covers_the_encrypted_body(make: Callable[..., ShardApis]) -> None:
    apis = make(SIGN=True)
    raw_id, key = apis.add(1), apis.keys("jobs")
    body = apis.client.hget(key, raw_id)
    assert body[0] == ENCRYPTED_FORMAT | SIGNED
    assert apis.operations.move(raw_id, "other")
    changed = bytearray(apis.client.hget(key, raw_id))
    changed[1] ^= 1  # the priority, which only the signature covers
    apis.client.hset(key, raw_id, bytes(changed))
    worker = apis.worker()
    [claim] = worker.take(1, "other").claims
    assert run(claim).kind is OutcomeKind.BAD_SIGNATURE
    plain = make(SIGN=True, ENCRYPT=False)
    plain.add(2)
    assert take(apis)[1].kind is OutcomeKind.SUCCEEDED


def test_the_largest_body_that_is_not_large_is_shown_in_lists(make: Callable[..., ShardApis]) -> None:
    apis = make(SIGN=True)
    for size in range(32_600, 32_800, 7):
        apis.add("x" * size, delay=HOUR)
    for row in apis.inspection.page(State.SCHEDULED, queues=["default"], count=100).rows:
        assert (row.job is None) == bool(row.head.flags & 4)


def test_the_checks_read_encrypted_jobs(make: Callable[..., ShardApis], settings: Any) -> None:
    apis = make()
    apis.add(1, key="k")
    add_failing(apis, delay=HOUR)
    apis.add_dead()
    assert list(ConsistencyCheck(apis.shard).walk(repair=True)) == []
    assert [each.reason for each in judge_jobs(apis.shard, now_us=0)] == [None, None]
    settings.SECRET_KEY = "second"
    [first, _] = [each.reason for each in judge_jobs(make().shard, now_us=0)]
    assert first == (OutcomeKind.UNKNOWN_KEY, "tests.sample_app.tasks.noop")


def test_the_commands_show_and_run_encrypted_jobs(
    delayq_settings: Any, registered: Any, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    registered({tasks.record.name: tasks.record})
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ENCRYPT": True}
    job = tasks.record.after(60).enqueue(ARGUMENT)
    for named in ([], [job.id]):
        call_command("delayq_jobs", *named)
        assert ARGUMENT in capsys.readouterr().out
    call_command("delayq_run", job.id, "--yes")
    assert ARGUMENT in (tmp_path / "ledger").read_text()
    assert get_job(job.id) is None


def test_processes_encrypt_rotate_and_leave_nothing_readable(
    processes: Processes, client: Redis, monkeypatch: pytest.MonkeyPatch, registered: Any, capsys: Any
) -> None:
    monkeypatch.undo()
    registered({task.name: task for task in (tasks.record, tasks.fail)})
    processes._settings.SECRET_KEY = "only-for-tests"
    before = tasks.record.enqueue("before")
    old, new = "old secret " * 4, "new secret " * 4
    processes.configure(ENCRYPT=True, ENCRYPTION_KEYS=[old])
    jobs = [before, tasks.record.enqueue(ARGUMENT), tasks.record.using(key=OPTION).after(0.1).enqueue(word=LATER)]
    twice = tasks.fail.enqueue(1)
    processes.configure(ENCRYPT=True, ENCRYPTION_KEYS=[new, old])
    dead = tasks.fail.enqueue()
    processes.worker("--with-dispatcher")
    processes.until_gone([*jobs, twice])
    processes.until_state(dead, "dead")
    assert {str(run["args"] or run["kwargs"]) for run in processes.runs() if "args" in run} == {
        "['before']",
        f"['{ARGUMENT}']",
        f"{{'word': '{LATER}'}}",
    }
    assert len(processes.runs(twice.id)) == 2 and len(processes.runs(dead.id)) == 3
    # Also the reports of the processes, their replies and their figures.
    until(lambda: client.exists(processes.keys("process_reports")), what="the worker's report")
    stored = everything(client)
    assert readable(client) == [] and b"as asked" not in stored and b"Traceback" not in stored
    letter = inspection().dead_letter(bytes.fromhex(dead.id.split("-")[0]))
    assert letter is not None and "as asked" in letter.attempts.last_error
    assert get_job(dead.id).state is State.DEAD
    call_command("delayq_check")
    tasks.record.after(60).enqueue(ARGUMENT)
    processes.configure(ENCRYPT=True, ENCRYPTION_KEYS=["another secret " * 4])
    with pytest.raises(SystemExit):
        call_command("delayq_check")
    assert "encrypted with a secret that this process lacks" in capsys.readouterr().out
