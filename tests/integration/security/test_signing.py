"""Signing: with SIGN on, a worker runs only bodies that this project signed for that very job."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from django_delayq import delayed_task
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import BadSignature
from django_delayq.job.body.codec import SIGNED, encode, with_queue
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import Action, OutcomeKind
from django_delayq.job.retry import RetryPolicy
from tests.factories import unsent
from tests.inspection import inspection
from tests.integration.security.steps import take
from tests.sample_app import tasks
from tests.shard_apis import DAY, HOUR, ShardApis
from tests.subprocesses import Processes

#: A run closes connections that other tests may have opened.
pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
ran: list[Any] = []


def work(*args: Any) -> None:
    ran.append(args)


def check_done(*args: Any) -> bool:
    ran.append(("checked", *args))
    return True


@pytest.fixture(autouse=True)
def own_task(registered: Any, settings: Any) -> None:
    """Make the task of `ShardApis.add` record its runs."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "first", []
    registered({})
    ran.clear()
    delayed_task(name="tests.sample_app.tasks.noop", already_done=check_done)(work)


@pytest.fixture
def make(make_apis: Callable[..., ShardApis]) -> Callable[..., ShardApis]:
    """Make APIs with SIGN on: `make()`, `make(SIGN=False)`."""
    return partial(make_apis, SIGN=True)


def assert_refused(apis: ShardApis, raw_id: bytes, queue: str = "default") -> None:
    """Check that the job is dead at once because of its signature, and that none of its code ran."""
    claim, outcome = take(apis, queue)
    assert (claim.raw_id, claim.job, outcome.kind) == (raw_id, None, OutcomeKind.BAD_SIGNATURE)
    assert isinstance(claim.fault, BadSignature)
    assert apis.where(raw_id) == ["dead_letters"]
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None and letter.attempts.history[-1]["ending"] == "bad signature"
    assert ran == []


def body_of(apis: ShardApis, raw_id: bytes) -> bytes:
    body: bytes = apis.client.hget(apis.keys("jobs"), raw_id)
    return body


def test_a_signed_job_runs(make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id = apis.add(1, "x", key="k")
    assert body_of(apis, raw_id)[0] & SIGNED
    assert take(apis)[1].kind is OutcomeKind.SUCCEEDED
    assert ran == [(1, "x")]
    assert apis.traces(raw_id) == []


@pytest.mark.parametrize("options", [{"delay": HOUR}, {"priority": 9}, {"key": "k", "delay": 1}], ids=str)
def test_a_signed_job_keeps_its_options(options: dict[str, Any], make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id = apis.add(1, **options)
    found = apis.inspection.find(raw_id)
    assert found.job is not None and found.job.args == [1]
    assert apis.operations.reschedule(raw_id, delay_us=0)
    assert take(apis)[1].kind is OutcomeKind.SUCCEEDED


def test_with_signing_off_nothing_is_signed(make: Callable[..., ShardApis]) -> None:
    apis = make(SIGN=False)
    unsent = apis.draft(1)
    apis.enqueue(unsent)
    assert body_of(apis, unsent.job.raw_id) == unsent.body


def test_an_unsigned_job_is_dead_and_never_runs(make: Callable[..., ShardApis]) -> None:
    apis, off = make(), make(SIGN=False)
    raw_id = off.add(1)
    assert_refused(apis, raw_id)
    # A person may requeue it, but it stays unsigned.
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None
    apis.operations.requeue(raw_id, died_us=letter.moment_us)
    apis.promote()
    assert_refused(apis, raw_id)


FORGERIES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "other arguments": lambda body, _: body.replace(b"[1]", b"[2]"),
    "other task": lambda body, _: body.replace(b"noop", b"nope"),
    "other priority": lambda body, _: body[:1] + bytes((body[1] ^ 1,)) + body[2:],
    "other flags": lambda body, _: body[:2] + bytes((body[2] ^ 2,)) + body[3:],
    "another job's body": lambda _, other: other,
    "another job's signature": lambda body, other: body[:-32] + other[-32:],
    "cut": lambda body, _: body[:-1],
    "signature and mark cut off": lambda body, _: bytes((body[0] & ~SIGNED,)) + body[1:-32],
    "signature cut off, mark kept": lambda body, _: body[:-32],
    "garbage": lambda *_: b"\x01garbage",
    "nothing": lambda *_: b"",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_job_changed_in_redis_is_dead_and_never_runs(forgery: str, make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id, other = apis.add(1), apis.add(1)
    forged = FORGERIES[forgery](body_of(apis, raw_id), body_of(apis, other))
    assert forged != body_of(apis, raw_id)
    apis.client.hset(apis.keys("jobs"), raw_id, forged)
    assert_refused(apis, raw_id)


@pytest.mark.parametrize(("top", "size"), [(0x03, 500), (0x83, 500), (0xFF, 3), (0x7F, 1)])
def test_a_forged_body_of_a_later_release_does_not_run(top: int, size: int, make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id = apis.add(1)
    forged = bytes((top,)) + body_of(apis, raw_id)[1:size]
    apis.client.hset(apis.keys("jobs"), raw_id, forged)
    claim, outcome = take(apis)
    assert (claim.job, ran) == (None, [])
    assert outcome.kind is (OutcomeKind.NEWER if size == 500 else OutcomeKind.UNREADABLE)


def test_a_job_put_into_another_queue_is_dead_and_never_runs(make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id = apis.add(1)
    apis.client.rename(apis.keys.ready("default"), apis.keys.ready("other"))
    assert_refused(apis, raw_id, "other")


def test_already_done_is_not_called_for_an_unsigned_suspect(make: Callable[..., ShardApis]) -> None:
    apis, off = make(), make(SIGN=False)
    for first, expected in ((apis, [("checked", 1)]), (off, [])):
        ran.clear()
        raw_id = first.add(1)
        worker = apis.worker()
        worker.settle(worker.take().claims[0], Action.RETRY, suspect=True, delay=1)
        apis.clock.advance(1)
        apis.promote()
        if first is off:
            assert_refused(apis, raw_id)
        else:
            assert take(apis)[1].kind is OutcomeKind.SUCCEEDED
        assert ran == expected


def test_a_forged_job_is_refused_again_after_its_lease_expired(make: Callable[..., ShardApis]) -> None:
    # The dispatcher uses the policy in the body without a check of the signature.
    apis = make()
    job = Job(
        raw_id=next_id(),
        shard=0,
        task="tests.sample_app.tasks.noop",
        queue="default",
        retry=RetryPolicy(max_attempts=1_000),
    )
    make(SIGN=False).enqueue(unsent(job, max_payload=1_000))
    assert apis.worker().take().claims[0].job is None
    apis.clock.advance(DAY)
    dispatcher = Dispatcher(apis.shard, apis.promotion)
    dispatcher.promote()
    dispatcher.promote()
    assert_refused(apis, job.raw_id)


def test_retry_and_requeue_leave_the_body_as_it_is(make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id = apis.add(1)
    body = body_of(apis, raw_id)
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.RETRY)
    apis.promote()
    assert body_of(apis, raw_id) == body
    apis.kill(raw_id)
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None and letter.job is not None
    apis.operations.requeue(raw_id, died_us=letter.moment_us)
    apis.promote()
    assert body_of(apis, raw_id) == body
    assert take(apis)[1].kind is OutcomeKind.SUCCEEDED


def test_jobs_of_an_old_key_run_while_it_is_a_fallback(make: Callable[..., ShardApis], settings: Any) -> None:
    apis = make()
    early, late = apis.add("early"), apis.add("late")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "second", ["first"]
    rotated = make()
    new = rotated.add("new")
    assert take(rotated)[0].raw_id == early
    settings.SECRET_KEY_FALLBACKS = []
    without_fallback = make()
    assert ran == [("early",)]
    ran.clear()
    assert_refused(without_fallback, late)
    assert take(without_fallback)[0].raw_id == new
    assert ran == [("new",)]


def test_with_signing_off_jobs_run_whatever_their_signature(make: Callable[..., ShardApis]) -> None:
    apis, off = make(), make(SIGN=False)
    raw_id = apis.add(1)
    apis.client.hset(apis.keys("jobs"), raw_id, body_of(apis, raw_id)[:-32] + bytes(32))
    assert take(off)[1].kind is OutcomeKind.SUCCEEDED
    assert ran == [(1,)]


def test_a_moved_body_can_be_signed_again(make: Callable[..., ShardApis]) -> None:
    apis = make()
    raw_id = apis.add(1)
    moved = apis.store.signer.resign(raw_id, body_of(apis, raw_id), lambda body: with_queue(body, "other"))
    apis.client.hset(apis.keys("jobs"), raw_id, moved)
    apis.client.rename(apis.keys.ready("default"), apis.keys.ready("other"))
    assert take(apis, "other")[1].kind is OutcomeKind.SUCCEEDED


def test_a_resent_job_has_the_same_signed_body(make: Callable[..., ShardApis]) -> None:
    apis = make()
    unsent = apis.draft(1)
    apis.enqueue(unsent)
    first = body_of(apis, unsent.job.raw_id)
    assert apis.enqueue(unsent).held == {}
    assert body_of(apis, unsent.job.raw_id) == first
    assert len(apis.ready()) == 1


def test_worker_processes_run_signed_jobs_and_dead_letter_the_rest(
    processes: Processes, client: Redis, monkeypatch: pytest.MonkeyPatch, registered: Any
) -> None:
    monkeypatch.undo()
    registered({task.name: task for task in (tasks.record, tasks.fail)})
    processes._settings.SECRET_KEY = "only-for-tests"
    processes.configure(SIGN=False)
    forged = [tasks.record.enqueue("forged"), tasks.record.after(0.05).enqueue("forged, delayed")]
    processes.configure(SIGN=True)
    signed = [tasks.record.enqueue("signed"), tasks.record.after(0.1).enqueue("signed, delayed")]
    twice = tasks.fail.enqueue(1)
    worker = processes.worker("--with-dispatcher")
    processes.until_gone([*signed, twice])
    for job in forged:
        processes.until_state(job, "dead")
    runs = processes.runs()
    assert sorted(run["args"][0] for run in runs if "args" in run) == ["signed", "signed, delayed"]
    assert len(processes.runs(twice.id)) == 2
    for job in forged:
        letter = inspection().dead_letter(bytes.fromhex(job.id.split("-")[0]))
        assert letter is not None and letter.attempts.ended == 1
        assert letter.attempts.history[-1]["ending"] == "bad signature"
    assert worker.running
    dead = [line for line in worker.output.splitlines() if " is dead after attempt 1: " in line]
    assert len(dead) == 2 and all("the job is not signed" in line for line in dead)


def test_a_command_without_a_secret_key_ends_at_its_start(processes: Processes) -> None:
    processes.configure(SIGN=True)
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write("SECRET_KEY = ''\n")
    for name in ("run_worker", "run_dispatcher"):
        command = processes.start(name)
        assert command.wait() == 1
        assert "SECRET_KEY" in command.output and "Traceback" not in command.output


def test_an_unsent_job_is_not_signed(make: Callable[..., ShardApis]) -> None:
    # Its flags may still change until it is sent.
    apis = make()
    unsent = apis.draft(1)
    assert encode(unsent.job, max_payload=1_000)[1] == unsent.body
    later = unsent.rescheduled(delay_us=1, due_us=None, called_at=0.0)
    apis.enqueue(later)
    apis.clock.advance(HOUR)
    apis.promote()
    assert take(apis)[1].kind is OutcomeKind.SUCCEEDED


def test_move_verifies_and_signs_again(make: Callable[..., ShardApis]) -> None:
    apis, off = make(), make(SIGN=False)
    raw_id, forged = apis.add(1), off.add(2)
    assert apis.operations.move(raw_id, "other")
    assert take(apis, "other")[1].kind is OutcomeKind.SUCCEEDED
    with pytest.raises(BadSignature):
        apis.operations.move(forged, "other")
    assert apis.where(forged) == ["ready:default"]
    # With signing off, a moved job loses its signature, which would be wrong.
    signed = apis.add(3)
    assert off.operations.move(signed, "other")
    assert not body_of(apis, signed)[0] & SIGNED
