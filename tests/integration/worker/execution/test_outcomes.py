"""Outcomes of a run: success, failure, a retry or a dead letter on request, an unknown task."""

import asyncio
import pickle
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from redis import Redis

from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, Snooze, get_store
from django_delayq.clock import moment_us
from django_delayq.exceptions import BadBody, NewerBody, TaskTimeout, see
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import Claim, State
from django_delayq.job.outcome import SHORTEST_WAIT_US, OutcomeKind, decide
from django_delayq.job.retry import lineage_of
from django_delayq.signals import last_line
from django_delayq.store.claims import Claims
from django_delayq.task import registry
from django_delayq.worker.execution import run, run_async
from django_delayq.worker.settlement import decide_settlement
from tests.integration.worker.execution.claims import Run, claim_of, raises, spin
from tests.sample_app.tasks import noop


def test_a_task_that_returns_succeeds(run_task: Run) -> None:
    got: list[Any] = []
    outcome = run_task(lambda *args, **kwargs: got.append((args, kwargs)), 1, [2], kwargs={"a": None})
    assert (outcome.kind, outcome.error, outcome.delay_us) == (OutcomeKind.SUCCEEDED, "", None)
    assert outcome.run_us >= 0 and got == [((1, [2]), {"a": None})]


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no money"),
        SystemExit(3),
        GeneratorExit(),
        KeyboardInterrupt(),
        BaseException("base"),
        BaseExceptionGroup("several", [ValueError("a"), SystemExit()]),
        asyncio.CancelledError(),
        StopIteration(),
        TaskTimeout(),
        UnicodeEncodeError("ascii", "\ud800", 0, 1, "lone"),
        BrokenText(),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_whatever_a_task_raises_is_a_failure(error: BaseException, kind: str, run_task: Run) -> None:
    async def func() -> None:
        raise error

    outcome = run_task(raises(error) if kind == "sync" else func)
    assert outcome.kind is OutcomeKind.FAILED
    assert type(error).__name__ in outcome.error
    assert run_task(lambda: None).kind is OutcomeKind.SUCCEEDED, "the thread did not survive"
    outcome.error.encode("utf-8", "surrogatepass")


def test_the_traceback_leads_to_the_line(run_task: Run) -> None:
    outcome = run_task(raises(ValueError("no money")))
    assert raises.__code__.co_filename in outcome.error and "ValueError: no money" in outcome.error


def test_a_long_error_keeps_the_beginning_of_its_message_and_its_end(run_task: Run) -> None:
    outcome = run_task(raises(ValueError("no money" + "x" * 1_000_000 + "the end")))
    assert len(outcome.error) <= 64 * 1024 and "the end" in outcome.error[-100:]
    assert "ValueError: no moneyxx" in outcome.error


def test_endless_recursion_is_a_failure(run_task: Run) -> None:
    def deeper() -> None:
        deeper()

    assert "RecursionError" in run_task(deeper).error


@pytest.mark.parametrize(
    ("delay", "delay_us"), [(None, None), (0, 0), (1.5, 1_500_000), (timedelta(hours=1), 3_600_000_000)]
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_retry_later_requests_a_retry(delay: Any, delay_us: int | None, kind: str, run_task: Run) -> None:
    async def func() -> None:
        raise RetryLater(delay, "the bank is closed")

    outcome = run_task(raises(RetryLater(delay, "the bank is closed")) if kind == "sync" else func)
    assert (outcome.kind, outcome.delay_us, outcome.error) == (
        OutcomeKind.RETRY_REQUESTED,
        delay_us,
        "the bank is closed",
    )


@pytest.mark.parametrize("delay", ["5", -1, float("nan"), float("inf"), True, datetime.max])
def test_retry_later_with_an_invalid_delay_is_a_failure(delay: Any, run_task: Run) -> None:
    outcome = run_task(raises(RetryLater(delay)))
    assert outcome.kind is OutcomeKind.FAILED and "delay" in outcome.error


class Declined(ValueError):
    """An error of the project."""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_outcome_has_the_lineage_of_its_exception_if_the_policy_has_rules(kind: str, run_task: Run) -> None:
    async def func() -> None:
        raise Declined("no")

    body = raises(Declined("no")) if kind == "sync" else func
    assert run_task(body).lineage == ()
    outcome = run_task(body, retry=RetryPolicy(dead_on="a.B"))
    assert outcome.lineage == lineage_of(Declined) and outcome.lineage[0] == (outcome.exception,)


def test_a_time_limit_and_an_open_transaction_have_a_lineage(run_task: Run) -> None:
    outcome = run_task(spin, timeout_us=50_000, retry=RetryPolicy(retry_on=TaskTimeout))
    assert outcome.lineage[0] == ("django_delayq.exceptions.TaskTimeout",)
    assert decide(outcome, RetryPolicy(retry_on=TaskTimeout), attempt=1, jitter=0.5).action == "retry"


@pytest.mark.parametrize(("returned", "delay_us"), [(7, 7_000_000), (timedelta(hours=1), 3_600_000_000), (0, 0)])
@pytest.mark.parametrize("error", [ValueError("no"), RetryLater()])
def test_a_task_may_compute_its_delay(returned: Any, delay_us: int, error: Exception, run_task: Run) -> None:
    seen: list[Any] = []

    def delay(attempt: int, error: BaseException) -> Any:
        seen.append((attempt, error))
        return returned

    outcome = run_task(raises(error), retry_delay=delay, attempts=AttemptHistory(ended=2))
    assert (outcome.delay_us, seen) == (delay_us, [(3, error)])
    assert decide(outcome, RetryPolicy(), attempt=3, jitter=0.5).delay_us == delay_us


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (RetryLater(5), {}),
        (Snooze(5), {}),
        (DeadLetterNow(), {}),
        (ValueError(), {"attempts": AttemptHistory(ended=4)}),
        (ValueError(), {"retry": RetryPolicy(dead_on=ValueError)}),
    ],
    ids=["RetryLater", "Snooze", "DeadLetterNow", "last attempt", "dead_on"],
)
def test_no_delay_is_computed_if_the_task_named_one_or_no_attempt_follows(
    error: Exception, facts: Any, run_task: Run
) -> None:
    def delay(attempt: int, error: BaseException) -> float:
        raise AssertionError("must not be called")

    outcome = run_task(raises(error), retry_delay=delay, **facts)
    assert outcome.delay_us == (5_000_000 if isinstance(error, RetryLater | Snooze) else None)


@pytest.mark.parametrize("wrong", ["5", -1, float("nan"), True, 10**30, SystemExit(), KeyError("attempt")], ids=repr)
def test_a_wrong_delay_leaves_it_to_the_policy_and_is_logged_once(
    wrong: Any, run_task: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def delay(attempt: int, error: BaseException) -> Any:
        if isinstance(wrong, BaseException):
            raise wrong
        return wrong

    # Once for each task of a process.
    options = {"retry_delay": delay, "name": f"shop.tasks.play_{wrong!r}"}
    outcomes = [run_task(raises(ValueError("no")), **options) for _ in range(3)]
    assert {(outcome.kind, outcome.delay_us) for outcome in outcomes} == {(OutcomeKind.FAILED, None)}
    [record] = [each for each in caplog.records if "retry_delay of shop.tasks.play_" in each.getMessage()]
    assert record.exc_info
    assert record.attempt == 1 and record.task == options["name"]  # type: ignore[attr-defined]


def test_a_retry_delay_may_leave_it_to_the_policy(run_task: Run, caplog: pytest.LogCaptureFixture) -> None:
    outcome = run_task(raises(ValueError("no")), retry_delay=lambda attempt, error: None)
    assert outcome.delay_us is None and not caplog.records


@pytest.mark.parametrize(
    ("arguments", "delay_us"),
    [
        ({"delay": 0}, 0),
        ({"delay": 1.5}, 1_500_000),
        ({"delay": timedelta(hours=1)}, 3_600_000_000),
        ({"seconds": 1, "minutes": 5}, 301_000_000),
        ({"until": datetime(2001, 1, 1, tzinfo=UTC)}, 0),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_snooze_says_for_how_long(arguments: Any, delay_us: int, kind: str, run_task: Run) -> None:
    async def func() -> None:
        raise Snooze(**arguments, reason="no answer yet")

    outcome = run_task(raises(Snooze(**arguments, reason="no answer yet")) if kind == "sync" else func)
    assert (outcome.kind, outcome.delay_us, outcome.error) == (OutcomeKind.SNOOZED, delay_us, "no answer yet")


def test_a_snooze_until_a_moment_ends_then_by_the_clock_of_redis(run_task: Run) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    # Redis's clock is almost a day ahead of this host's.
    outcome = run_task(raises(Snooze(until=until)), claimed_us=moment_us(until) - 60_000_000)
    assert outcome.delay_us is not None and 30_000_000 < outcome.delay_us <= 60_000_000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"delay": "5"}, "delay must be a number of seconds or a timedelta, got str"),
        ({"delay": -1}, "delay must not be negative"),
        ({"minutes": -1}, "delay must not be negative"),
        ({"minuts": 5}, "Snooze() has no keyword 'minuts'"),
        ({"hours": "5"}, "Snooze(hours=…) must be a number"),
        ({"days": 10**15}, "longer than a timedelta can be"),
        ({"delay": 1e300}, "delay is longer than MAX_DELAY"),
        ({"days": 4_000}, "delay is longer than MAX_DELAY"),
        ({"until": datetime(2250, 1, 1, tzinfo=UTC)}, "until is more than MAX_DELAY"),
        ({"until": datetime(2001, 1, 1)}, "until must be an aware datetime, got a naive one"),
        ({"until": 5}, "until must be an aware datetime, got int"),
    ],
)
def test_a_snooze_with_wrong_arguments_is_a_failure_that_names_them(
    arguments: Any, complaint: str, run_task: Run
) -> None:
    outcome = run_task(raises(Snooze(**arguments)))
    assert outcome.kind is OutcomeKind.FAILED and complaint in outcome.error


@pytest.mark.parametrize(
    ("error", "takes"),
    [
        (Snooze("not yet"), "str; Snooze() takes seconds, a timedelta, keywords such as minutes=5, or until= for a"),
        (Snooze(datetime(2030, 1, 1, tzinfo=UTC)), "datetime; Snooze() takes seconds, a timedelta, keywords"),
        (Snooze(minutes=-1), "negative; Snooze() takes"),
        (RetryLater("the bank is busy"), "str; RetryLater() takes seconds or a timedelta, then the reason; for a"),
        (RetryLater(-1), "negative; RetryLater() takes"),
    ],
    ids=repr,
)
def test_a_wrong_delay_is_a_failure_that_says_what_is_taken(error: Exception, takes: str, run_task: Run) -> None:
    outcome = run_task(raises(error))
    assert outcome.kind is OutcomeKind.FAILED and takes in outcome.error
    assert "at(moment)" not in outcome.error


@pytest.mark.parametrize("arguments", [{}, {"delay": 1, "minutes": 1}, {"delay": 1, "until": 1}])
def test_a_snooze_takes_one_time(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"Snooze\(\) takes seconds, a timedelta, keywords"):
        Snooze(**arguments)


@pytest.mark.parametrize("kind", [RetryLater, Snooze, DeadLetterNow])
def test_the_text_of_a_tasks_error_is_a_plain_string(run_task: Run, kind: Any) -> None:
    class Sly(str):
        def __str__(self) -> str:
            raise SystemExit

    class Requested(kind):  # type: ignore[misc]
        def __str__(self) -> str:
            return Sly("the bank is closed")

    outcome = run_task(raises(Requested(5)))
    assert (type(outcome.error), outcome.error) == (str, "the bank is closed")


@pytest.mark.parametrize("delay", [1e300, 10**30, timedelta.max])
def test_retry_later_beyond_max_delay_is_a_failure(delay: Any, run_task: Run) -> None:
    outcome = run_task(raises(RetryLater(delay)))
    assert outcome.kind is OutcomeKind.FAILED and "MAX_DELAY" in outcome.error


def test_dead_letter_now_makes_a_dead_letter(run_task: Run) -> None:
    outcome = run_task(raises(DeadLetterNow("the user is gone")))
    assert (outcome.kind, outcome.error) == (OutcomeKind.REJECTED, "the user is gone")
    policy = RetryPolicy(max_attempts=1_000)
    assert decide(outcome, policy, attempt=1, jitter=0.5).action == "dead_letter"


def test_a_job_of_an_unknown_task_is_retried() -> None:
    outcome = run(claim_of("shop.tasks.renamed"))
    assert outcome.kind is OutcomeKind.UNKNOWN_TASK and "'shop.tasks.renamed'" in outcome.error
    decision = decide(outcome, RetryPolicy(), attempt=1, jitter=0.5)
    assert (decision.action, decision.delay_us) == ("retry", SHORTEST_WAIT_US)


class Lazy:
    """An object in a module that raises outside of its context, as Flask's `request` does."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("working outside of a request")


@pytest.mark.parametrize("name", ["lazy_module.request", "blocked_module.task", "no_module.task", "task", ".", ""])
def test_a_name_that_is_no_task_is_unknown_whatever_object_it_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blocked_module", None)
    module = ModuleType("lazy_module")
    vars(module)["request"] = Lazy()
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    assert run(claim_of(name)).kind is OutcomeKind.UNKNOWN_TASK


def test_an_error_of_a_task_finder_fails_the_attempt_and_not_the_thread() -> None:
    def fails(name: str) -> None:
        raise RuntimeError("a finder's own fault")

    claim = claim_of("shop.tasks.renamed")
    registry.finders.append(fails)
    try:
        outcomes = [run(claim), asyncio.run(run_async(claim))]
    finally:
        registry.finders.remove(fails)
    for outcome in outcomes:
        assert outcome.kind is OutcomeKind.FAILED and "a finder's own fault" in outcome.error


def test_a_job_whose_arguments_no_longer_fit_is_retried(run_task: Run) -> None:
    def narrowed(user_id: int) -> None:
        raise AssertionError("must not run")

    for facts in ({"kwargs": {"name": "x"}}, {"kwargs": {"user_id": 1, "more": 2}}, {}):
        outcome = run_task(narrowed, **facts)
        assert outcome.kind is OutcomeKind.ARGUMENTS_MISMATCH and "shop.tasks.play" in outcome.error
    assert run_task(narrowed, 1, 2).kind is OutcomeKind.ARGUMENTS_MISMATCH
    # A log line has the cure and the address, however long a name is.
    line = last_line(run_task(narrowed, kwargs={"user_id": 1, "x" * 300: 2}).error)
    assert (
        len(line) <= 402 and "do not fit shop.tasks.play" in line and "or restart a worker with old code. See" in line
    )
    assert line.rstrip('"').endswith(see("troubleshooting#the-arguments-do-not-fit"))


def test_a_type_error_of_the_task_itself_is_a_failure(run_task: Run) -> None:
    def wrong(value: int) -> None:
        len(value)  # type: ignore[arg-type]

    assert run_task(wrong, 1).kind is OutcomeKind.FAILED


def unread(fault: Exception) -> Claim:
    claim = claim_of("any")
    facts = {name: getattr(claim, name) for name in Claim.__slots__}
    return Claim(**{**facts, "job": None, "fault": fault})


def test_a_body_of_a_newer_release_and_a_damaged_one_have_different_outcomes() -> None:
    newer, damaged = run(unread(NewerBody("format 2"))), run(unread(BadBody("its head does not end")))
    assert (newer.kind, newer.error) == (OutcomeKind.NEWER, "format 2")
    assert (damaged.kind, damaged.error) == (OutcomeKind.UNREADABLE, "its head does not end")


def test_an_outcome_is_a_plain_value_whatever_was_raised(run_task: Run) -> None:
    outcome = run_task(raises(BrokenText()))
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_a_job_of_an_unknown_task_is_scheduled_without_its_attempt_counted(delayq_settings: Any, client: Redis) -> None:
    handle = noop.enqueue(1)
    store = get_store()
    claims = Claims(store.shards[0])
    [claim] = claims.settle_and_claim(claims.prepare(queues=["default"], want=1)).claims
    with registry.override({}):
        outcome = run(claim)
    settled = decide_settlement(claim, outcome, worker="w")
    assert not claims.settle_and_claim(claims.prepare(queues=["default"], want=0, settlements=[settled])).lost
    assert handle.refresh().state is State.SCHEDULED and handle.due
    assert handle.due - datetime.now(UTC) <= timedelta(seconds=1)
    attempts = store.lookup(0).find(claim.raw_id).attempts
    assert (attempts.ended, attempts.history, attempts.waiting_for) == (0, (), "unknown task")
    assert attempts.waiting_since_us == claim.claimed_us
