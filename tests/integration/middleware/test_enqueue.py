"""Middlewares at the enqueue: their order, what they see and change, and what is refused before anything is stored."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import transaction

from django_delayq import enqueue_many, execute_later, get_store
from django_delayq.exceptions import KeyHeld, PayloadNotSerializable, PayloadTooLarge, StoreUnavailable
from django_delayq.middleware import Middleware as Base
from django_delayq.middleware.chain import get_chain
from tests.integration.middleware import classes
from tests.sample_app import django_tasks, tasks

Middleware = Callable[..., None]


def stored() -> int:
    """Return the number of jobs in Redis."""
    [shard] = get_store().shards
    return int(shard.client.hlen(shard.keys("jobs")))


def test_they_are_called_outermost_first_and_built_once(middleware: Middleware) -> None:
    middleware("Outer", "Inner")
    for _ in range(2):
        assert tasks.noop.enqueue().state == "ready"
    assert classes.seen == ["Outer made", *["Outer enqueue", "Inner enqueue", "Outer enqueued"] * 2]
    assert stored() == 2


def test_async_code_calls_the_async_form_where_there_is_one(middleware: Middleware) -> None:
    middleware("Inner", "Outer", "RequestId")
    classes.request_id.set("from the request")
    handle = asyncio.run(tasks.noop.aenqueue())
    assert classes.seen == ["Outer made", "Inner aenqueue", "Outer enqueue", "Outer enqueued"]
    assert handle.job and handle.job.context == {"request_id": "from the request"}


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_the_block_of_the_base_class_surrounds_the_enqueue(middleware: Middleware, is_async: bool) -> None:
    middleware("Around", "AroundNothing", "RequestId")
    classes.request_id.set("from the request")
    handle = asyncio.run(tasks.noop.aenqueue()) if is_async else tasks.noop.enqueue()
    assert classes.seen == ["Around enqueue", "Around enqueued"]
    assert get_job_context(handle) == {"request_id": "from the request"}


@pytest.mark.parametrize("name", ["enqueue", "aenqueue", "run", "arun"])
def test_a_subclass_of_the_base_class_has_no_methods_of_one_form_only(name: str) -> None:
    around = {"enqueue": "around_enqueue", "run": "around_run"}[name.removeprefix("a")]
    with pytest.raises(TypeError, match=f"Half defines {name}; define {around}"):
        type("Half", (Base,), {name: lambda self, job: None})


def test_a_list_with_async_forms_only_serves_plain_callers(middleware: Middleware) -> None:
    middleware("AsyncEnqueue")
    assert tasks.noop.enqueue().state == "ready"
    assert classes.seen == ["AsyncEnqueue"]


@pytest.mark.django_db(transaction=True)
def test_every_way_to_enqueue_passes_through(middleware: Middleware) -> None:
    middleware("RequestId")
    handles = [
        tasks.noop.enqueue(),
        tasks.noop.after(60).enqueue(),
        tasks.record.using(key="k").enqueue(1),
        execute_later("mail", tasks.noop.name),
        *enqueue_many([tasks.noop.job()]),
        *tasks.record.enqueue_many([[1], [2]]),
    ]
    tasks.record.enqueue_many(([number] for number in range(3)), on_progress=lambda accepted: None)
    assert [get_job_context(handle) for handle in handles] == [{"request_id": "none"}] * 7
    result = django_tasks.add.enqueue(1)
    [shard] = get_store().shards
    bodies = shard.client.hvals(shard.keys("jobs"))
    assert len(bodies) == 11 and all(b'"c":{"request_id":"none"}' in body for body in bodies)
    assert result.id


def get_job_context(handle: Any) -> Any:
    """Return the context of a job as Redis has it."""
    return get_store().lookup(0).find(handle._raw_id).job.context


@pytest.mark.django_db(transaction=True)
def test_they_are_called_at_the_call_and_not_at_the_commit(middleware: Middleware) -> None:
    middleware("RequestId")
    with transaction.atomic():
        classes.request_id.set("of the call")
        handle = tasks.noop.enqueue()
        classes.request_id.set("later")
        assert handle.state == "unsent" and stored() == 0
    assert get_job_context(handle) == {"request_id": "of the call"}


def test_they_see_the_job_and_cannot_change_it_by_accident(middleware: Middleware) -> None:
    looked: list[Any] = []

    def look(next: Any, job: Any) -> Any:
        looked.append((job.id, job.task, job.queue, job.priority, job.key, job.args, dict(job.kwargs), job.attempt))
        for name in ("task", "queue", "args", "kwargs", "id"):
            with pytest.raises(AttributeError):
                setattr(job, name, "changed")
        with pytest.raises(TypeError):
            job.kwargs["more"] = 1
        job.args[0].append("changed")
        return next.enqueue(job)

    middleware("Calling")
    classes.Calling.enqueue_by = look
    handle = tasks.record.using(key="k", priority=5).enqueue(["secret"])
    assert looked == [(handle.id, tasks.record.name, "default", 5, "k", (["secret"],), {}, None)]
    assert handle.job and handle.job.args == [["secret"]]
    assert get_store().lookup(0).find(handle._raw_id).job.args == [["secret"]]


def test_its_repr_shows_neither_arguments_nor_context(middleware: Middleware) -> None:
    shown: list[str] = []

    def show(next: Any, job: Any) -> Any:
        job.context["token"] = "canary"
        shown.append(repr(job))
        return next.enqueue(job)

    middleware("Calling")
    classes.Calling.enqueue_by = show
    handle = tasks.record.enqueue("canary")
    assert handle.id in shown[0] and "canary" not in shown[0] + repr(handle.job)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("x" * 5_000, PayloadTooLarge, ["takes 5,013 bytes of JSON, more than 4,096", "'filled'", "job.context"]),
        (object(), PayloadNotSerializable, ["the context of the job of", "['filled'] is a object"]),
        (float("nan"), PayloadNotSerializable, ["['filled'] is nan"]),
    ],
    ids=["5 KiB", "object", "NaN"],
)
def test_a_context_that_cannot_travel_is_refused(
    middleware: Middleware, value: Any, error: type[Exception], words: list[str]
) -> None:
    middleware("Filling")
    classes.Filling.value = value
    for enqueue in (tasks.noop.enqueue, tasks.noop.job, lambda: asyncio.run(tasks.noop.aenqueue())):
        with pytest.raises(error) as caught:
            enqueue()
        assert all(word in str(caught.value) for word in words), str(caught.value)
    with pytest.raises(error):
        django_tasks.add.enqueue(1)
    assert stored() == 0


def test_a_context_of_the_largest_size_travels(middleware: Middleware) -> None:
    middleware("Filling")
    classes.Filling.value = "x" * (4_096 - len('{"filled":""}'))
    assert get_job_context(tasks.noop.enqueue()) == {"filled": classes.Filling.value}


def test_a_context_that_is_no_dict_is_refused(middleware: Middleware) -> None:
    def replace(next: Any, job: Any) -> Any:
        job.context = ["list"]
        return next.enqueue(job)

    middleware("Calling")
    classes.Calling.enqueue_by = replace
    with pytest.raises(PayloadNotSerializable, match="must be a dict, got list"):
        tasks.noop.enqueue()
    assert stored() == 0


def test_an_exception_goes_to_the_caller_and_nothing_is_stored(middleware: Middleware) -> None:
    middleware("Outer", "Refusing")
    classes.Refusing.at_enqueue = PermissionError("not today")
    for enqueue in (
        tasks.noop.enqueue,
        lambda: asyncio.run(tasks.noop.aenqueue()),
        lambda: tasks.record.enqueue_many([[1], [2]]),
        lambda: django_tasks.add.enqueue(1),
    ):
        with pytest.raises(PermissionError, match="not today"):
            enqueue()
    assert stored() == 0


def again(next: Any, job: Any) -> Any:
    handle = next.enqueue(job)
    with suppress(TypeError):
        next.enqueue(job)
    return handle


@pytest.mark.parametrize(
    ("enqueue_by", "words"),
    [
        (lambda next, job: None, "did not call next.enqueue"),
        (lambda next, job: next.enqueue(job) and None, "returned NoneType from enqueue"),
        (lambda next, job: (next.enqueue(job), next.enqueue(job))[0], "called next.enqueue.. twice"),
        (lambda next, job: next.enqueue("job"), "passed str on"),
        (lambda next, job: again(next, job), "called next.enqueue.. twice.*was not enqueued"),
    ],
    ids=["no call", "no return", "twice", "another job", "twice unnoticed"],
)
def test_a_middleware_that_breaks_the_grammar_gets_an_error(
    middleware: Middleware, enqueue_by: Any, words: str
) -> None:
    middleware("Calling")
    classes.Calling.enqueue_by = enqueue_by
    with pytest.raises(TypeError, match=words):
        tasks.noop.enqueue()
    assert stored() == 0


def test_one_that_declines_is_left_out(middleware: Middleware) -> None:
    middleware("Outer", "NotUsed")
    assert tasks.noop.enqueue().state == "ready"


def test_without_middlewares_there_is_no_chain(delayq_settings: Any) -> None:
    assert get_chain() is None
    handle = tasks.noop.enqueue()
    assert handle.job and handle.job.context is None and get_job_context(handle) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Missing", "cannot be imported"),
        ("NoNext", "does not take next; define __init__"),
        ("Shapeless", "none of the methods enqueue, run, aenqueue, arun"),
        ("Misnamed", "method run is async; rename it arun"),
        ("PlainArun", "method arun is not async"),
        ("function", "'function', not a class"),
    ],
)
def test_a_wrong_class_is_an_error_of_the_checks_of_an_enqueue_and_of_a_worker(
    middleware: Middleware, name: str, words: str
) -> None:
    middleware("Outer", name)
    [problem] = [each for each in run_checks() if each.id == "delayq.E020"]
    assert words in problem.msg and f"classes.{name}'" in problem.msg
    with pytest.raises(ImproperlyConfigured, match=words):
        tasks.noop.enqueue()
    assert stored() == 0
    with pytest.raises(CommandError, match=words):
        call_command("run_worker", "--drain")


def test_one_that_cannot_be_built_stops_an_enqueue_and_a_worker(middleware: Middleware) -> None:
    middleware("Outer", "Failing")
    words = r"names '.*Failing', whose __init__.* raised LookupError: no tenants"
    with pytest.raises(ImproperlyConfigured, match=words):
        tasks.noop.enqueue()
    with pytest.raises(CommandError, match=words):
        call_command("run_worker", "--drain")


def test_errors_name_the_list_of_an_alias(middleware: Middleware, delayq_settings: Any) -> None:
    middleware("Outer")
    backend = "django_delayq.backend.DelayQBackend"
    options = {"MIDDLEWARE": [f"{classes.__name__}.NoNext"]}
    delayq_settings.TASKS = {"default": {"BACKEND": backend}, "second": {"BACKEND": backend, "OPTIONS": options}}
    [problem] = [each for each in run_checks() if each.id == "delayq.E020"]
    assert problem.msg.startswith("TASKS['second']['OPTIONS']['MIDDLEWARE'] names ")
    with pytest.raises(ImproperlyConfigured, match=r"^TASKS\['second'\]\['OPTIONS'\]\['MIDDLEWARE'\] names "):
        get_chain("second")
    del delayq_settings.DELAYQ
    delayq_settings.TASKS = {"only": {"BACKEND": backend, "OPTIONS": {"REDIS": "redis://", **options}}}
    with pytest.raises(ImproperlyConfigured, match=r"^TASKS\['only'\]\['OPTIONS'\]\['MIDDLEWARE'\] names "):
        get_chain()


@pytest.mark.parametrize("listed", [["Refusing"], ["Inner", "Refusing"]], ids=["plain", "behind an async one"])
def test_a_stop_iteration_loses_no_job_without_a_word(middleware: Middleware, listed: list[str]) -> None:
    middleware(*listed)
    classes.Refusing.at_enqueue = StopIteration()
    given: list[Any] = [(1,), (2,)]
    for act in (
        lambda: tasks.noop.enqueue(),
        lambda: tasks.noop.enqueue_many(given),
        lambda: tasks.noop.enqueue_many(given, on_progress=lambda accepted: None),
        lambda: enqueue_many(map(tasks.noop.job, [1, 2])),
        lambda: asyncio.run(asyncio.wait_for(tasks.noop.aenqueue(), 5)),
        lambda: asyncio.run(asyncio.wait_for(tasks.noop.aenqueue_many(given), 5)),
        lambda: django_tasks.add.enqueue(1),
    ):
        with pytest.raises(
            RuntimeError, match="of tests.sample_app.*StopIteration|StopIteration.* of tests.sample_app"
        ):
            act()
    assert stored() == 0


def test_they_wrap_the_making_of_a_job_and_not_its_sending(
    middleware: Middleware, delayq_settings: Any, start_redis: Any
) -> None:
    seen: list[Any] = []

    def watch(next: Any, job: Any) -> Any:
        try:
            handle = next.enqueue(job)
        except Exception as error:
            seen.append(type(error))
            raise
        seen.append(str(handle.state))
        return handle

    def refuse_late(next: Any, job: Any) -> Any:
        next.enqueue(job)
        raise PermissionError

    middleware("Calling")
    classes.Calling.enqueue_by = refuse_late
    with pytest.raises(PermissionError):
        tasks.noop.enqueue()
    assert stored() == 0
    classes.Calling.enqueue_by = watch
    reject = tasks.noop.using(key="k", unique="reject").after(60)
    reject.enqueue()
    with pytest.raises(KeyHeld):
        reject.enqueue()
    server = start_redis()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": server.url}
    server.kill()
    with pytest.raises(StoreUnavailable):
        tasks.noop.enqueue()
    assert seen == ["unsent"] * 3
