"""Handles in event loops: any number of calls share a few connections, beside each other and in several loops."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction
from redis import Redis

from django_delayq import aenqueue_many, aget_job, delayed_task, get_job
from django_delayq.clock import ServerClock
from django_delayq.exceptions import NoResult, WaitTimeout
from django_delayq.job.outcome import Action
from django_delayq.signals import job_enqueued
from django_delayq.task.handle import JobHandle
from tests.sample_app import tasks
from tests.shard_apis import ShardApis
from tests.subprocesses import Processes

pytestmark = pytest.mark.usefixtures("delayq_settings")
NAME = "the-event-loop"


@pytest.fixture
def named(delayq_settings: Any) -> None:
    """Give the connections of this process a name."""
    url = delayq_settings.DELAYQ["REDIS"]
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": f"{url}{'&' if '?' in url else '?'}client_name={NAME}"}


@pytest.fixture
def apis(redis_url: str) -> Any:
    """The APIs of the same shard, for a worker."""
    made = ShardApis(redis_url, clock=ServerClock())
    yield made
    made.close()


def connections(client: Redis) -> int:
    """Return how many connections this process has; it keeps each that it ever opened."""
    return sum(each["name"] == NAME for each in client.client_list())


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def test_a_thousand_awaited_results_share_four_connections(
    processes: Processes, delayq_settings: Any, client: Redis
) -> None:
    processes.worker()
    url = delayq_settings.DELAYQ["REDIS"]
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": f"{url}?client_name={NAME}"}
    kept = tasks.echo.using(store_result=True)

    async def main() -> list[Any]:
        jobs = await kept.aenqueue_many([(number,) for number in range(1_000)])
        return await asyncio.gather(*(job.aresult(timeout=60) for job in jobs))

    assert run(main()) == list(range(1_000))
    assert 1 <= connections(client) <= 4


@pytest.mark.usefixtures("named")
def test_calls_beside_each_other_share_four_connections(client: Redis) -> None:
    async def main() -> None:
        jobs = await asyncio.gather(*(tasks.noop.after(60).aenqueue(number) for number in range(100)))
        found = await asyncio.gather(*(aget_job(job.id) for job in jobs))
        assert set(found) == set(jobs)
        assert all(await asyncio.gather(*(job.areschedule(delay=120) for job in jobs)))
        assert all(await asyncio.gather(*(job.acancel() for job in jobs)))
        assert {(await job.arefresh()).state for job in jobs} == {"gone"}

    run(main())
    assert connections(client) <= 4


@pytest.mark.usefixtures("named")
def test_several_event_loops_share_four_connections(client: Redis) -> None:
    async def main() -> int:
        jobs = await aenqueue_many([tasks.noop.after(60).job(number) for number in range(20)])
        return sum(await asyncio.gather(*(job.astop() for job in jobs)))

    with ThreadPoolExecutor(5) as loops:
        assert list(loops.map(lambda _: run(main()), range(5))) == [20] * 5
    assert connections(client) <= 4


def test_a_busy_thread_of_asgiref_delays_no_look_at_a_job() -> None:
    job, entered, leave = tasks.noop.after(60).enqueue(), threading.Event(), threading.Event()

    def block() -> bool:
        entered.set()
        return leave.wait(30)

    async def main() -> None:
        blocked = asyncio.create_task(sync_to_async(block)())
        await asyncio.to_thread(entered.wait)
        assert (await job.arefresh()).state == "scheduled"
        assert await job.acancel()
        leave.set()
        assert await blocked

    run(main())


@pytest.mark.django_db(transaction=True)
def test_a_job_of_a_transaction_waits_for_its_commit() -> None:
    later = tasks.noop.after(60)
    # asgiref runs the coroutine's synchronous part in this thread, where the transaction is.
    with transaction.atomic():
        jobs = [async_to_sync(later.aenqueue)(), *async_to_sync(later.aenqueue_many)([()])]
        jobs += async_to_sync(aenqueue_many)([later.job()])
        assert [job.state for job in jobs] == ["unsent"] * 3
    assert [job.refresh().state for job in jobs] == ["scheduled"] * 3


def test_receivers_of_signals_run_in_asgirefs_thread() -> None:
    threads: list[int] = []

    def receive(**_: Any) -> None:
        threads.append(threading.get_ident())

    async def main() -> int:
        await tasks.noop.after(60).aenqueue()
        return await sync_to_async(threading.get_ident)()

    job_enqueued.connect(receive)
    try:
        assert run(main()) == threads[0]
    finally:
        job_enqueued.disconnect(receive)


def test_a_result_that_does_not_come(apis: ShardApis) -> None:
    kept = tasks.noop.using(store_result=True)

    async def main() -> None:
        job = await kept.aenqueue()
        with pytest.raises(WaitTimeout, match="has not ended within 0.05 s, it is ready"):
            await job.aresult(timeout=0.05)
        waiting = asyncio.create_task(job.aresult())
        await asyncio.sleep(0)
        assert await job.acancel()
        with pytest.raises(NoResult, match="it is cancelled"):
            await waiting
        dead = await kept.aenqueue()
        waiting = asyncio.create_task(dead.aresult())
        await asyncio.sleep(0)
        await asyncio.to_thread(apis.kill, dead._raw_id)
        with pytest.raises(NoResult, match="it is dead"):
            await waiting
        given_up = asyncio.create_task((await kept.aenqueue()).aresult())
        await asyncio.sleep(0.02)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up

    run(main())


def test_an_unknown_job_is_none() -> None:
    assert run(aget_job("no id")) is None
    assert run(aget_job(None)) is None


def test_handles_of_one_job_are_equal() -> None:
    job, other = tasks.noop.after(60).enqueue(), tasks.noop.after(60).enqueue()
    again = get_job(job.id)
    assert job == again and hash(job) == hash(again) and job is not again
    assert job != other and job != job.id
    assert {job, again, other} == {job, other}


def test_a_handle_knows_attempts_error_and_task(apis: ShardApis, own_registry: None) -> None:
    job = tasks.noop.using(store_result=True).enqueue()
    assert (job.task, job.attempts, job.snoozes, job.error) == ("tests.sample_app.tasks.noop", 0, 0, None)
    worker = apis.worker()
    [claim] = worker.take().claims
    assert job.refresh().attempts == 1
    worker.settle(claim, Action.RETRY, error="Traceback …\nValueError: no\nmore")
    assert job.refresh().attempts == 1
    assert job.error is not None and (job.error.class_path, job.error.traceback) == ("", "")
    assert job.error.message == "Traceback …\nValueError: no\nmore"
    apis.promote()
    [claim] = worker.take().claims
    worker.settle(claim, Action.ACKNOWLEDGE, value="3")
    job.refresh()
    assert (job.state, job.error, job.task) == ("done", None, "tests.sample_app.tasks.noop")


def test_a_task_with_the_handle_of_its_job(own_registry: None) -> None:
    made = delayed_task(tasks.noop.func, name="tests.named")
    assert made.after(60).enqueue().task == "tests.named"


def test_a_dict_has_keyword_arguments_in_async_code_too() -> None:
    given: list[Any] = [(1,), {"value": 2}]
    jobs = run(tasks.echo.after(60).aenqueue_many(given))
    assert [(job.job.args, job.job.kwargs) for job in jobs] == [([1], {}), ([], {"value": 2})]
    with pytest.raises(TypeError, match="write .value,. for a single argument"):
        run(tasks.echo.aenqueue_many(["text"]))


def test_the_last_look_is_not_in_the_loop(apis: ShardApis) -> None:
    """Another call may change the handle meanwhile; a property would then ask Redis in the loop."""
    looked: list[int] = []

    class Watched(JobHandle):
        @property
        def result(self) -> Any:
            looked.append(threading.get_ident())
            return super().result

    tasks.echo.using(store_result=True).enqueue(7)
    worker = apis.worker()
    [claim] = worker.take().claims
    worker.settle(claim, Action.ACKNOWLEDGE, value="7")
    assert run(Watched(raw_id=claim.raw_id, shard=0).aresult(timeout=5)) == 7
    assert looked and threading.get_ident() not in looked


def test_handles_of_one_store_are_equal_under_each_of_its_aliases(delayq_settings: Any) -> None:
    backend = "django_delayq.backend.DelayQBackend"
    delayq_settings.TASKS = {alias: {"BACKEND": backend} for alias in ("default", "second")}
    job = tasks.noop.after(60).enqueue()
    again = get_job(job.id, backend="default")
    assert again == job and {job: 1}[again] == 1
    assert JobHandle(raw_id=job._raw_id, shard=0, backend="second") != job


@pytest.mark.django_db(transaction=True)
def test_a_handle_whose_id_may_change_has_no_hash() -> None:
    holder = tasks.noop.using(key="k").after(60).enqueue()
    with transaction.atomic():
        plain = tasks.noop.after(60).enqueue()
        job = tasks.noop.using(key="k").after(60).enqueue()
        reject = tasks.noop.using(key="other", unique="reject").after(60).enqueue()
        kept = {plain, reject}
        with pytest.raises(TypeError, match="after the commit, or keep it in a list"):
            hash(job)
    assert plain in kept and reject in kept
    assert job == holder and job.id == holder.id and {job} == {holder}
