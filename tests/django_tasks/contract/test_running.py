"""Running: R25 to R31, by the functions that workers use."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import pytest

from django_delayq import Task, get_job, get_store
from django_delayq.backend.backend import DelayQBackend
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.job.ids import created_us, from_text
from django_delayq.processes.emitter import emit_now
from django_delayq.store.claims import Claims
from django_delayq.store.promotion import Promotion
from django_delayq.task import registry
from tests.django_tasks.compat import (
    NAME,
    TaskResultStatus,
    default_task_backend,
    task,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.django_tasks.conftest import with_options
from tests.django_tasks.contract.test_enqueue import MOMENT
from tests.django_tasks.worker import OneWorker
from tests.inspection import inspection
from tests.one_by_one import one_by_one
from tests.sample_app import django_tasks
from tests.subprocesses import until

READY, RUNNING, FAILED, SUCCESSFUL = (
    getattr(TaskResultStatus, name) for name in ("READY", "RUNNING", "FAILED", "SUCCESSFUL")
)


def test_a_task_may_change_its_arguments(signal_log: Any, drain: Any) -> None:
    first, second = django_tasks.use_up.enqueue([1], others={}), django_tasks.noop.enqueue()
    assert drain() == 2
    for result in (first, second):
        result.refresh()
    assert (first.return_value, second.status) == ("used up", SUCCESSFUL)
    finished = [result for word, _, result in signal_log.received if word == "finished"]
    assert [(result.args, result.kwargs) for result in finished] == [([[1]], {"others": {}}), ([], {})]


def test_r25_a_deferred_task_and_one_between_two_attempts_are_ready(signal_log: Any, drain: Any) -> None:
    deferred, retried = django_tasks.noop.using(run_after=MOMENT).enqueue(), django_tasks.succeed_at.enqueue(2)
    assert OneWorker().step()
    retried.refresh()
    deferred.refresh()
    assert (deferred.status, retried.status, retried.attempts) == (READY, READY, 1)
    with pytest.raises(ValueError, match="not finished"):
        deferred.return_value  # noqa: B018


def test_r25_a_claimed_task_is_running(drain: Any) -> None:
    result = django_tasks.noop.enqueue()
    store = get_store()
    claims = Claims(store.shards[0])
    claims.settle_and_claim(claims.prepare(queues=["default"], want=1, worker_name="host:1"))
    result.refresh()
    assert (result.status, result.worker_ids, result.attempts) == (RUNNING, ["host:1"], 1)
    assert result.started_at == result.last_attempted_at
    assert result.finished_at is None


def test_r25_the_signals_come_in_their_order_with_the_class_of_the_backend(signal_log: Any, drain: Any) -> None:
    ok, wrong = django_tasks.add.enqueue(1), django_tasks.fail.enqueue()
    drain()
    assert signal_log.words == [
        *("enqueued READY", "enqueued READY", "started RUNNING", "finished SUCCESSFUL"),
        *("started RUNNING", "finished FAILED"),
    ]
    assert {sender for _, sender, _ in signal_log.received} == {DelayQBackend}
    for result, seen in ((ok, signal_log.received[3][2]), (wrong, signal_log.received[5][2])):
        result.refresh()
        assert seen == result


def test_r25_when_task_finished_comes_the_result_is_stored() -> None:
    found: list[Any] = []

    def look(task_result: Any, **_: Any) -> None:
        found.append((task_result, default_task_backend.get_result(task_result.id)))

    task_finished.connect(look)
    try:
        django_tasks.add.enqueue(1)
        django_tasks.fail.enqueue()
        OneWorker().drain()
    finally:
        task_finished.disconnect(look)
    assert len(found) == 2
    assert all(seen == stored for seen, stored in found)


def test_r26_times_are_in_order_and_workers_have_names(drain: Any) -> None:
    results = [django_tasks.describe.enqueue(), django_tasks.fail.enqueue(), django_tasks.succeed_at.enqueue(1)]
    drain()
    for result in results:
        result.refresh()
        assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at
        assert [1 <= len(worker) <= 64 for worker in result.worker_ids] == [True]
        assert str(os.getpid()) in result.worker_ids[0]
    assert results[0].return_value["workers"] == results[0].worker_ids
    assert results[0].return_value["started_at"] == str(results[0].started_at)


def test_r26_a_fast_clock_of_the_enqueuer_does_not_reverse_the_times(
    monkeypatch: pytest.MonkeyPatch, drain: Any
) -> None:
    right = time.time_ns
    for each in (django_tasks.add, django_tasks.fail):
        with monkeypatch.context() as fast:
            fast.setattr(time, "time_ns", lambda: right() + 10_000_000_000)
            result = each.enqueue("1")
        assert created_us(from_text(result.id)[0]) > right() // 1_000 + 9_000_000
        drain()
        result.refresh()
        assert result.enqueued_at <= result.started_at <= result.finished_at


def test_r26_a_long_host_name_is_cut(drain: Any) -> None:
    result = django_tasks.noop.enqueue()
    OneWorker(name="h" * 64 + ":12345").drain()
    result.refresh()
    assert result.worker_ids == ["h" * 58 + ":12345"]


def test_r27_an_error_has_its_class_and_its_traceback_with_the_cause(drain: Any) -> None:
    result = django_tasks.fail.enqueue("as asked")
    drain()
    result.refresh()
    [error] = result.errors
    assert (error.exception_class_path, error.exception_class) == ("builtins.ValueError", ValueError)
    assert error.traceback.startswith("Traceback")
    for part in ("KeyError: 'the cause'", "The above exception was the direct cause", "ValueError: as asked"):
        assert part in error.traceback


@pytest.mark.parametrize("text", ["nul \0 nul", "\ud800 alone", "\U0001f600", "x" * 100_000, "%s {} \x1b[0m"])
def test_r27_any_text_of_an_error_is_stored(text: str, drain: Any) -> None:
    result = django_tasks.fail.enqueue(text)
    drain()
    result.refresh()
    assert result.status == FAILED
    assert f"{text[-500:]}\n" in result.errors[0].traceback[-600:]


def test_r28_system_exit_is_a_failure_and_the_worker_lives_on(drain: Any) -> None:
    first, second = django_tasks.leave.enqueue(), django_tasks.add.enqueue(1)
    assert drain() == 2
    first.refresh()
    second.refresh()
    assert (first.status, first.errors[0].exception_class, second.status) == (FAILED, SystemExit, SUCCESSFUL)


def test_r29_coroutine_functions_run_with_and_without_a_context(drain: Any) -> None:
    plain, with_context = django_tasks.aecho.enqueue(1, a=2), asyncio.run(django_tasks.adescribe.aenqueue())
    drain()
    asyncio.run(plain.arefresh())
    with_context.refresh()
    assert plain.return_value == [[1], {"a": 2}]
    assert with_context.return_value == 1


def test_r30_an_exception_is_final_unless_options_say_otherwise(tasks_settings: Any) -> None:
    result = django_tasks.fail.enqueue()
    assert OneWorker().drain() == 1
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 1)


def test_r30_each_attempt_has_its_error_and_its_worker(tasks_settings: Any, signal_log: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.fail.module_path: {"retry": django_tasks.PATIENT}})
    result = django_tasks.fail.enqueue()
    starts = []
    for attempt in (1, 2, 3):
        worker = OneWorker(name=f"worker:{attempt}")
        until(worker.step, what="the next attempt")
        result.refresh()
        starts.append((result.started_at, result.last_attempted_at, result.attempts, len(result.errors), result.status))
    assert [start[2:] for start in starts] == [(1, 1, READY), (2, 2, READY), (3, 3, FAILED)]
    assert len({start[0] for start in starts}) == 1
    assert len({start[1] for start in starts}) == 3
    assert result.worker_ids == ["worker:1", "worker:2", "worker:3"]
    assert signal_log.words == ["enqueued READY", *["started RUNNING"] * 3, "finished FAILED"]


def test_r30_the_context_counts_attempts(drain: Any) -> None:
    result = django_tasks.succeed_at.enqueue(3)
    worker = OneWorker()
    for _ in range(3):
        until(worker.step, what="the next attempt")
    result.refresh()
    assert (result.return_value, result.attempts, len(result.errors)) == (3, 3, 2)
    assert {error.exception_class_path for error in result.errors} == {"django_delayq.exceptions.RetryLater"}


@contextmanager
def without_fail(monkeypatch: pytest.MonkeyPatch, registered: Any) -> Iterator[None]:
    """Let this process know no task of the name `fail`."""
    known = dict(registry._tasks)
    registered({name: task for name, task in known.items() if ".fail" not in name})
    with monkeypatch.context() as away:
        away.delattr(django_tasks, "fail")
        yield
    registered(known)


def test_r31_wrong_arguments_fail_at_once_and_an_unknown_function_waits(
    monkeypatch: pytest.MonkeyPatch, registered: Any, drain: Any, signal_log: Any
) -> None:
    unfit, lost, sound = (
        django_tasks.add.enqueue(1, 2, 3, c=4),
        django_tasks.fail.enqueue(),
        django_tasks.add.enqueue(1),
    )
    with without_fail(monkeypatch, registered):
        assert drain() == 3
    for result in (unfit, lost, sound):
        result.refresh()
    assert [result.status for result in (unfit, lost, sound)] == [FAILED, READY, SUCCESSFUL]
    assert unfit.errors[0].exception_class is TypeError
    assert "do not fit" in unfit.errors[0].traceback
    assert get_job(lost.id).reschedule(delay=0) and drain() == 1
    lost.refresh()
    assert (lost.status, lost.attempts) == (FAILED, 1)
    assert lost.errors[0].exception_class_path != "django_delayq.exceptions.UnknownTask"


def test_r31_an_unknown_function_fails_when_no_worker_knew_it_for_long_enough(
    monkeypatch: pytest.MonkeyPatch, registered: Any, drain: Any, delayq_settings: Any
) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "UNKNOWN_TASK_TTL": 0}
    lost = django_tasks.fail.enqueue()
    with without_fail(monkeypatch, registered):
        assert drain() == 1
    lost.refresh()
    assert lost.status == FAILED
    assert lost.errors[0].exception_class_path == "django_delayq.exceptions.UnknownTask"
    assert "No task is registered" in lost.errors[0].traceback


def test_r31_a_task_declared_for_another_backend_is_known_where_its_module_is_loaded(
    tasks_settings: Any, registered: Any, drain: Any
) -> None:
    result = django_tasks.add.enqueue(1)
    registered({})
    assert drain() == 1
    result.refresh()
    assert result.return_value == 1


def test_r31_a_stored_name_selects_nothing_but_tasks() -> None:
    for name in (
        "os.system",
        "tests.sample_app.django_tasks.os",
        "tests.sample_app.django_tasks.PATIENT",
        "nowhere",
        "",
        ".x",
    ):
        assert registry.find(name) is None


def test_r37_one_record_each_on_the_loggers_of_django(drain: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=NAME)
    ok = django_tasks.add.enqueue(1)
    wrong = django_tasks.fail.enqueue()
    drain()
    records = [record for record in caplog.records if record.name == NAME]
    seen = [(record.levelname, record.getMessage().split("path=")[1]) for record in records]
    added, failed = f"{django_tasks.add.module_path}", f"{django_tasks.fail.module_path}"
    assert seen == [
        ("DEBUG", f"{added} enqueued backend=default"),
        ("DEBUG", f"{failed} enqueued backend=default"),
        *[("INFO", f"{added} state={state}") for state in ("RUNNING", "SUCCESSFUL")],
        *[(level, f"{failed} state={state}") for level, state in (("INFO", "RUNNING"), ("ERROR", "FAILED"))],
    ]
    assert ok.id in records[0].getMessage()
    text = logging.Formatter().format(records[-1])
    assert "KeyError: 'the cause'" in text
    assert "ValueError: as asked" in text
    assert wrong.id in text
    assert not any(record.exc_info for record in records[:-1])


def test_receivers_may_be_coroutine_functions_also_where_a_loop_runs_the_task() -> None:
    from django_delayq.worker.execution import run_async

    signal_log: list[str] = []

    async def receive(task_result: Any, **_: Any) -> None:
        await asyncio.sleep(0)
        signal_log.append(str(task_result.status))

    signals = (task_enqueued, task_started, task_finished)
    for signal in signals:
        signal.connect(receive)
    try:
        results = [django_tasks.aecho.enqueue(1), asyncio.run(django_tasks.aecho.aenqueue(2))]
        OneWorker(run=lambda claim: asyncio.run(run_async(claim))).drain()
    finally:
        for signal in signals:
            signal.disconnect(receive)
    for result in results:
        result.refresh()
        assert result.status == SUCCESSFUL
    assert signal_log == ["READY", "READY", "RUNNING", "SUCCESSFUL", "RUNNING", "SUCCESSFUL"]


def test_the_decorator_takes_options_if_django_passes_them_on() -> None:
    if django.VERSION[:2] == (6, 0):
        with pytest.raises(TypeError):
            task(delayq={"timeout": 3})(django_tasks.add.func)
    else:
        assert task(delayq={"timeout": 3})(django_tasks.add.func).delayq == {"timeout": 3}
    with pytest.raises(TypeError):
        task(timeout=3)(django_tasks.add.func)


def test_the_id_of_a_result_is_that_of_a_job_which_can_be_waited_for() -> None:
    result = django_tasks.add.enqueue(1)
    job = get_job(result.id)
    assert job is not None
    OneWorker().drain()
    assert job.wait(5) == 1
    assert job.result == 1


def expire_lease(client: Any) -> None:
    """Let every lease expire, and the dispatcher reclaim the jobs."""
    leases = get_store().shards[0].keys("leases")
    for lease in client.zrange(leases, 0, -1):
        client.zadd(leases, {lease: 1})
    store = get_store()
    dispatcher = Dispatcher(store.shards[0], Promotion(store.shards[0]), emit=emit_now)
    dispatcher.promote()
    dispatcher.close()


def claim_and_die() -> None:
    """Claim the first ready job and never settle it."""
    store = get_store()
    claims = Claims(store.shards[0])
    assert claims.settle_and_claim(claims.prepare(queues=["default"], want=1, worker_name="dead:1")).claims


def test_r30_a_task_whose_worker_died_runs_again_and_its_result_has_both_attempts(client: Any) -> None:
    result = django_tasks.describe.enqueue()
    claim_and_die()
    expire_lease(client)
    result.refresh()
    assert (result.status, result.worker_ids, len(result.errors)) == (READY, ["dead:1"], 1)
    first = result.started_at
    # A suspect runs in a process of its own in a worker; here the second attempt is what counts.
    assert OneWorker(name="host:2").drain() == 1
    result.refresh()
    assert (result.status, result.worker_ids, result.started_at) == (SUCCESSFUL, ["dead:1", "host:2"], first)
    assert result.return_value["attempt"] == 2
    assert result.errors[0].exception_class_path == "django_delayq.exceptions.JobCrashed"
    assert "its lease expired" in result.errors[0].traceback


def test_r25_a_task_that_dies_with_its_workers_is_finished_by_the_dispatcher(client: Any, signal_log: Any) -> None:
    result = django_tasks.noop.enqueue()
    for _ in range(3):
        claim_and_die()
        expire_lease(client)
        Promotion(get_store().shards[0]).promote(["default"])
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 3, 3)
    word, sender, seen = signal_log.received[-1]
    assert (word, sender, seen.id, seen.status) == ("finished", DelayQBackend, result.id, FAILED)
    assert signal_log.words == ["enqueued READY", "finished FAILED"]


def test_a_failed_task_that_is_requeued_is_ready_with_its_history(gate: Any) -> None:
    result = django_tasks.fail_until.enqueue(str(gate))
    OneWorker().drain()
    result.refresh()
    failed_at = result.finished_at
    operations = one_by_one()
    raw_id = bytes.fromhex(result.id.split("-")[0])
    letter = inspection().dead_letter(raw_id)
    assert letter is not None
    assert operations.requeue(raw_id, died_us=letter.moment_us) is not None
    result.refresh()
    assert (result.status, result.finished_at, len(result.errors), result.attempts) == (READY, None, 1, 1)
    gate.touch()
    OneWorker().drain()
    result.refresh()
    assert (result.status, result.return_value, result.attempts, len(result.errors)) == (SUCCESSFUL, "seen", 2, 1)
    assert result.finished_at > failed_at


def test_a_task_that_became_a_delayed_one_while_its_jobs_waited_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    result = django_tasks.add.enqueue(1, 2)
    name = django_tasks.add.module_path
    monkeypatch.setitem(registry._tasks, name, Task(func=django_tasks.add.func, name=name))
    assert OneWorker().drain() == 1
    job = get_job(result.id)
    assert job is not None
    assert (job.state, job.result) == ("done", 3)
