"""Redaction: no output and no error report shows a sensitive argument, however it was passed."""

import asyncio
import sys
from collections.abc import Callable
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
from django.views.debug import ExceptionReporter

from django_delayq import delayed_task, execute_later
from django_delayq.conf.config import DispatcherConfig, TaskConfig, WorkerConfig
from django_delayq.exceptions import PayloadNotSerializable, PayloadTooLarge, StoreUnavailable
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job, State
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind
from django_delayq.job.result import Result
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.signing import BodySigner
from django_delayq.store.claims import Claims, ExchangeReply, ExchangeRequest, Settlement
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.task import outbox, sender
from django_delayq.task.decorator import SensitiveTask
from django_delayq.task.handle import JobHandle
from django_delayq.task.sensitive import HIDDEN, check_sensitive, redact
from django_delayq.task.task import Task
from django_delayq.worker.settlement import decide_settlement
from tests.factories import claim_for, unsent

CANARY = "4111-canary"
H = HIDDEN


def pay(user: int, card: str, /, amount: int = 0, *rest: int, note: str = "", **options: Any) -> None: ...


def plain(user: int, card: str = "", note: str = "") -> None: ...


@pytest.fixture(autouse=True)
def own_registry(registered: Any) -> None:
    registered()


@pytest.mark.parametrize(
    ("func", "sensitive", "args", "kwargs", "seen", "seen_named"),
    [
        (plain, (), [1, "c"], {"note": "n"}, [1, "c"], {"note": "n"}),
        (plain, False, [1, "c"], {}, [1, "c"], {}),
        (plain, ("card",), [1, "c"], {"note": "n"}, [1, H], {"note": "n"}),
        (plain, ("card",), [1], {"card": "c"}, [1], {"card": H}),
        (plain, ("card", "note"), [1], {"card": ["c"], "note": {}}, [1], {"card": H, "note": H}),
        (plain, True, [1, None], {"note": ""}, [H, H], {"note": H}),
        # Positional-only, *rest, keyword-only, **options.
        (pay, ("card",), [1, "c", 5, 6], {"x": 1}, [1, H, 5, 6], {"x": 1}),
        (pay, ("rest",), [1, "c", 5, 6, 7], {}, [1, "c", 5, H, H], {}),
        (pay, ("note",), [1, "c"], {"note": "n", "x": 1}, [1, "c"], {"note": H, "x": 1}),
        (pay, ("options",), [1, "c"], {"note": "n", "x": 1, "y": 2}, [1, "c"], {"note": "n", "x": H, "y": H}),
        (pay, ("card",), [1, "c"], {"card": "in options"}, [1, H], {"card": H}),
        (pay, ("options",), [1, "c"], {"card": "in options"}, [1, "c"], {"card": H}),
        (pay, ("x",), [1, "c"], {"x": 1, "y": 2}, [1, "c"], {"x": H, "y": 2}),
        # Arguments that no longer bind: too few, too many, an unknown name, one twice.
        (plain, ("card",), [], {"note": "n"}, [], {"note": H}),
        (plain, ("card",), [1, "c", "n", "more"], {}, [H, H, H, H], {}),
        (plain, ("card",), [1], {"kard": "c"}, [H], {"kard": H}),
        (plain, ("card",), [1, "c"], {"card": "c"}, [H, H], {"card": H}),
    ],
)
def test_sensitive_arguments_are_hidden_however_they_were_passed(
    func: Any, sensitive: Any, args: list[Any], kwargs: dict[str, Any], seen: list[Any], seen_named: dict[str, Any]
) -> None:
    before = (list(args), dict(kwargs))
    assert redact(signature(func), sensitive, args, kwargs) == (seen, seen_named)
    assert (args, kwargs) == before
    task = delayed_task(sensitive=sensitive)(func)
    assert task.redact_arguments(args, kwargs) == (seen, seen_named)
    assert task.after(60).redact_arguments(args, kwargs) == (seen, seen_named)


@pytest.mark.parametrize("wrong", ["card", b"card", 1, {"card"}, ("card", 1), None])
def test_sensitive_must_be_true_or_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match="sensitive must be True or a tuple of parameter names"):
        delayed_task(sensitive=wrong)(plain)


def test_a_misspelt_name_is_an_error_at_decoration_that_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'crad', which is no parameter of the task \(did you mean 'card'\?\)"):
        delayed_task(sensitive=("note", "crad"))(plain)
    assert check_sensitive(pay, ["in_options"]) == ("in_options",)


def test_only_sensitive_tasks_have_the_class_that_redacts() -> None:
    assert type(delayed_task(plain)) is type(delayed_task(sensitive=False)(plain)) is Task
    task = delayed_task(sensitive=True)(plain)
    assert type(task) is type(task.after(60).using(queue="q")) is SensitiveTask
    assert task.func is plain


def canary_job(**facts: Any) -> Job:
    return Job(
        raw_id=next_id(), shard=0, task="t", queue="q", args=[CANARY, [CANARY]], kwargs={"card": CANARY}, **facts
    )


def test_no_repr_shows_arguments_or_bodies() -> None:
    job = canary_job()
    draft = unsent(job, max_payload=1_000)
    assert CANARY.encode() in draft.body
    facts: dict[str, Any] = {"attempts_record": None, "shard": 0}
    claim = claim_for(job)
    request = ExchangeRequest(worker_id=bytes(8), number=1, want=1, queues=("q",), args=[draft.body], keys=[CANARY])
    flags = ("overdue_in_us", "has_more", "unknown_worker", "recovered")
    fields: dict[str, Any] = dict.fromkeys(flags, 0) | {"lost": frozenset()}
    reply = ExchangeReply(claimed=True, blocking=False, now_us=1, queues_version=b"", claims=[claim], **fields)
    values: list[Any] = [
        job,
        draft,
        claim,
        request,
        reply,
        decide_settlement(claim, Outcome(kind=OutcomeKind.FAILED), worker="w"),
        Settlement(claim=claim, decision=Decision(action=Action.RETRY), attempts=NO_ATTEMPTS),
        JobRow(
            member=job.member,
            state=State.READY,
            score=1,
            stored=draft.body,
            size=1,
            result=Result(state=State.DONE, ended_us=1, value=CANARY),
            **facts,
        ),
        JobHandle(raw_id=job.raw_id, shard=0, draft=draft),
    ]
    for value in values:
        assert CANARY not in f"{value!r} {value!s} {[value]!r}", type(value)


@pytest.mark.parametrize(
    "value",
    [{CANARY: {1}}, [{CANARY: {CANARY: (1,)}}], {CANARY: {1: 2}}, {CANARY: "\ud83d\ude00"}, {CANARY: 10**5_000}],
)
def test_errors_about_sensitive_arguments_quote_nothing_of_them(value: Any) -> None:
    for task in (delayed_task(sensitive=("card",))(plain), delayed_task(sensitive=True)(plain)):
        for call in (lambda: task.enqueue(1, value), lambda: task.job(1, card=value)):  # noqa: B023
            with pytest.raises(
                (PayloadNotSerializable, PayloadTooLarge), match=r"args\[1\]|kwargs\['card'\]"
            ) as caught:
                call()
            assert CANARY not in f"{caught.value!r}"
    with pytest.raises((PayloadNotSerializable, PayloadTooLarge), match=CANARY):
        delayed_task(plain).enqueue(1, value)


def test_arguments_given_in_place_of_jobs_are_not_quoted() -> None:
    with pytest.raises(TypeError, match="got tuple") as caught:
        outbox.enqueue_many([(CANARY,)])  # type: ignore[list-item]
    assert CANARY not in str(caught.value)


def report(call: Callable[[], Any], expected: type[BaseException]) -> str:
    """Return the report that Django mails to the admins about an error, without this test's own frame."""
    try:
        call()
    except expected:
        kind, error, trace = sys.exc_info()
    else:
        raise AssertionError("no error to report")
    assert trace is not None
    text = ExceptionReporter(None, kind, error, trace.tb_next, is_email=True).get_traceback_html()
    assert "sensitive_variables_wrapper" in text or "checked_by_django" in text
    return text


def secret() -> str:
    """Return the canary, so that no frame of the test has it in a local variable."""
    return CANARY


def checking(user: int, card: str = "", note: str = "") -> None:
    copy = len(card)
    raise RuntimeError(f"checked_by_django {copy} {user}")


@pytest.fixture
def no_redis(settings: Any) -> None:
    settings.DEBUG = False
    settings.DELAYQ = {"REDIS": "unix:///nonexistent/redis.sock", "ENQUEUE_TIMEOUT": 0.05}


ENQUEUES: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda task: task.enqueue(1, secret()),
    "by name": lambda task: task.enqueue(1, card=secret()),
    "after": lambda task: task.after(60).enqueue(1, secret()),
    "aenqueue": lambda task: asyncio.run(task.aenqueue(1, secret())),
    "enqueue_many": lambda task: task.enqueue_many([(1, secret())]),
    "jobs": lambda task: outbox.enqueue_many([task.job(1, secret())]),
    "execute_later": lambda task: execute_later("q", task.name, [1, secret()]),
}


@pytest.mark.parametrize("call", ENQUEUES)
def test_error_reports_of_an_enqueue_hide_sensitive_arguments(call: str, no_redis: None) -> None:
    task = delayed_task(sensitive=("card",))(plain)
    assert CANARY not in report(lambda: ENQUEUES[call](task), StoreUnavailable)


REFUSED = ["enqueue", "by name", "aenqueue", "enqueue_many", "aenqueue_many", "aenqueue_many by name", "execute_later"]


@pytest.mark.parametrize("call", REFUSED)
def test_error_reports_of_refused_arguments_hide_sensitive_arguments(call: str, no_redis: None) -> None:
    task = delayed_task(sensitive=("user", "card"))(plain).using(queue="x" * 200)
    calls: dict[str, Callable[[], Any]] = {
        "enqueue": lambda: task.enqueue(1, [secret(), {1}]),  # type: ignore[list-item]
        "by name": lambda: task.enqueue(1, card=secret(), nobody=1),
        "aenqueue": lambda: asyncio.run(task.aenqueue(1, [secret(), {1}])),  # type: ignore[list-item]
        "enqueue_many": lambda: task.enqueue_many([(1, [secret(), {1}])]),
        "aenqueue_many": lambda: asyncio.run(task.aenqueue_many([(1, [secret(), {1}])])),
        "aenqueue_many by name": lambda: asyncio.run(task.aenqueue_many([{"card": secret(), "nobody": 1}])),
        "execute_later": lambda: execute_later("q", task.name, [1, [secret(), {1}]]),
    }
    assert CANARY not in report(calls[call], TypeError)


@pytest.mark.parametrize("call", ["enqueue", "aenqueue", "enqueue_many", "aenqueue_many"])
def test_error_reports_of_arguments_that_are_too_large_hide_sensitive_arguments(call: str, no_redis: None) -> None:
    task = delayed_task(sensitive=("card",))(plain)
    calls: dict[str, Callable[[], Any]] = {
        "enqueue": lambda: task.enqueue(1, secret() * 200_000),
        "aenqueue": lambda: asyncio.run(task.aenqueue(1, secret() * 200_000)),
        "enqueue_many": lambda: task.enqueue_many([(1, secret() * 200_000)]),
        "aenqueue_many": lambda: asyncio.run(task.aenqueue_many([(1, secret() * 200_000)])),
    }
    assert CANARY not in report(calls[call], PayloadTooLarge)


def test_error_reports_of_a_call_or_a_run_hide_sensitive_arguments(no_redis: None) -> None:
    task = delayed_task(sensitive=("card",))(checking)
    for call in (lambda: task(77, secret()), lambda: task.callable(77, secret())):
        text = report(call, RuntimeError)
        assert CANARY not in text
    # A worker's report still shows arguments of the function that are not sensitive.
    assert "77" in text


def test_error_reports_show_no_bodies_even_without_sensitive_arguments(no_redis: None) -> None:
    handles = [delayed_task(plain).job(1, CANARY)]
    text = report(lambda: sender.send(handles), StoreUnavailable)
    assert CANARY not in text
    assert "task/sender.py" in text and "redis/connection.py" in text


def test_an_error_report_of_settle_and_claim_shows_no_bodies(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.DEBUG = False

    class BrokenShard:
        index = 0
        config = SimpleNamespace(dispatcher=DispatcherConfig(), worker=WorkerConfig(), tasks=TaskConfig())
        signer, cipher = BodySigner(on=False), Cipher(on=False)

        def call(self, *_: Any, **__: Any) -> Any:
            return self

        def result(self) -> Any:
            return [1, b"", 0, 1, 0, 0, b"member", 1, 1, CANARY.encode() * 2, b"", "one too many"]

    claims = Claims(BrokenShard())  # type: ignore[arg-type]
    request = ExchangeRequest(worker_id=bytes(8), number=1, want=1, queues=("q",), args=[], keys=[])
    assert CANARY not in report(lambda: claims.settle_and_claim(request), TypeError)
