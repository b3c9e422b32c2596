"""Filtered queues: a worker of a queue filter serves new queues at once, and leaves no job of others without a worker.

A filter worker that waits in Redis may receive the notification of any job. These tests follow each one to its end.
"""

import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from django_delayq import get_store
from django_delayq.conf.queue_filter import QueueFilter
from django_delayq.exceptions import StoreError
from django_delayq.store.keys import Keys
from django_delayq.worker.claiming.queue_listener import QueueListener
from django_delayq.worker.exchange_session import InFlight
from django_delayq.worker.worker import Worker
from tests.sample_app import tasks
from tests.shard_apis import ShardApis
from tests.stepped_worker import WorkerClock, stepped_worker
from tests.subprocesses import until

#: Seconds to wait for a readable socket.
PATIENCE = 30.0
KEYS = Keys("delayq", 0)
Serve = Callable[..., QueueListener]


@pytest.fixture
def clock() -> WorkerClock:
    """The stopped clock of all listeners."""
    clock = WorkerClock()
    clock.stop()
    return clock


@pytest.fixture
def serve(apis: ShardApis, clock: WorkerClock) -> Iterator[Serve]:
    """Make a listener of a filter of these items; of all queues without items. It knows the queues of now."""
    with ExitStack() as made:

        def make(*texts: str) -> QueueListener:
            queue_filter = QueueFilter.read(texts) if texts else None
            served = QueueListener(apis.shard, (), queue_filter, clock=clock)
            made.enter_context(closing(served))
            learn(served, apis)
            clock.ahead += 1
            # What a new worker sends to others.
            apis.client.delete(KEYS("notify"), KEYS("notify_sent_on"))
            return served

        yield make


def appear(apis: ShardApis, queue: str) -> None:
    """Let a new queue be listed, whose notification another worker consumes."""
    apis.shard.execute("ZADD", KEYS("queues"), 1, queue)
    apis.client.incr(KEYS("queues_version"))


def learn(served: QueueListener, apis: ShardApis) -> bool:
    """Pass it the version that an exchange returns now, as a worker does; returns whether it was stale."""
    stale = served.mark_if_stale(apis.worker().take(0).queues_version)
    served.refresh()
    return stale


def add(apis: ShardApis, queue: str) -> None:
    """Enqueue a job, whose own queue has named workers that consume its notification."""
    apis.add(queue=queue)
    apis.client.delete(KEYS.notify(queue))


def listen(served: QueueListener) -> int:
    """Let it listen, and wait until Redis has read its pop; returns the socket."""
    listens, before = served._listener.listening, blocked(served)
    descriptor = served.listen(wanted=True, block=60)
    until(
        lambda: listens or select.select([descriptor], [], [], 0)[0] or blocked(served) > before,
        what="the pop to reach Redis",
    )
    return descriptor


def blocked(served: QueueListener) -> int:
    """Return the number of clients that wait in Redis."""
    return int(served._shard.client.info("clients")["blocked_clients"])


def is_notified(served: QueueListener, apis: ShardApis) -> bool:
    """Return whether the listener has a reply by now."""
    # Redis serves blocked clients before it reads the next command.
    apis.client.ping()
    return bool(select.select([listen(served)], [], [], 0)[0])


def wake(served: QueueListener, *, wanted: bool = True) -> bool:
    """Wait for its notification, and let it read that."""
    assert select.select([listen(served)], [], [], PATIENCE)[0]
    return served.consume_wakeup(wanted=wanted)


def shared(apis: ShardApis) -> tuple[int, int]:
    """Return the number of notifications for all, and of those that were sent on."""
    return apis.client.llen(KEYS("notify")), apis.client.llen(KEYS("notify_sent_on"))


def test_it_serves_the_queues_that_match_while_they_exist(serve: Serve, apis: ShardApis) -> None:
    served = serve("mail*", "-*.slow")
    assert served.queues == () and not served.strict
    for queue in ("mail.b", "bulk", "mail.slow", "mail.a"):
        apis.add(queue=queue)
    assert learn(served, apis)
    assert served.queues == ("mail.a", "mail.b")
    assert not learn(served, apis)
    # As the dispatcher does ten minutes after its last job.
    apis.client.zrem(KEYS("queues"), "mail.b")
    apis.client.incr(KEYS("queues_version"))
    assert learn(served, apis)
    assert served.queues == ("mail.a",)


def test_it_listens_to_the_queues_that_it_knows_before_all_others(serve: Serve, apis: ShardApis) -> None:
    apis.add(queue="mail")
    apis.add(queue="bulk")
    served = serve("mail*")
    assert served.notification_keys == [KEYS.notify("mail"), KEYS("notify")]
    apis.add(queue="mail")
    assert wake(served)
    assert not served.owes_notification
    assert apis.client.exists(KEYS("notify"))


def test_a_notification_of_another_queue_is_sent_on_to_workers_of_all_queues(serve: Serve, apis: ShardApis) -> None:
    add(apis, "bulk")
    every, served = serve(), serve("mail*")
    listen(served)
    add(apis, "bulk")
    assert wake(served)
    assert shared(apis) == (0, 0)
    assert not learn(served, apis)
    served.send_on()
    assert shared(apis) == (0, 1)
    served.send_on()
    assert shared(apis) == (0, 1)
    assert wake(every)
    assert shared(apis) == (0, 0)


def test_a_worker_of_all_queues_that_waits_receives_what_is_sent_on(serve: Serve, apis: ShardApis) -> None:
    add(apis, "bulk")
    served, every = serve("mail*"), serve()
    # Redis serves the one that has waited longest.
    listen(served)
    listen(every)
    add(apis, "bulk")
    assert not is_notified(every, apis)
    wake(served)
    served.send_on()
    assert wake(every)


def test_two_workers_of_filters_do_not_send_a_notification_to_each_other(
    serve: Serve, apis: ShardApis, clock: WorkerClock
) -> None:
    add(apis, "bulk")
    first, second = serve("mail*"), serve("reports*")
    listen(first)
    listen(second)
    add(apis, "bulk")
    wake(first)
    learn(first, apis)
    first.send_on()
    clock.ahead += 1
    assert not is_notified(first, apis) and not is_notified(second, apis)
    assert shared(apis) == (0, 1)


def test_a_new_queue_is_known_to_every_worker_in_turn(serve: Serve, apis: ShardApis) -> None:
    first, second, every = serve("reports*"), serve("mail*"), serve()
    for each in (first, second, every):
        listen(each)
    add(apis, "mail.new")
    for each in (first, second, every):
        assert wake(each)
        assert learn(each, apis)
        each.send_on()
        assert not each.owes_notification
    assert (first.queues, second.queues, every.queues) == ((), ("mail.new",), ("mail.new",))
    # The last one notifies others too. Nobody reads a new name then, so it goes no further.
    assert shared(apis) == (1, 0)
    assert wake(every)
    assert not learn(every, apis)
    assert shared(apis) == (0, 0)


def test_it_leaves_the_notification_of_new_queues_to_others_for_a_while(
    serve: Serve, apis: ShardApis, clock: WorkerClock
) -> None:
    served = serve("reports*")
    add(apis, "reports.new")
    assert learn(served, apis)
    assert shared(apis) == (1, 0)
    assert served.notification_keys == [KEYS.notify("reports.new")]
    assert not is_notified(served, apis)
    clock.ahead += 1
    assert served.notification_keys == [KEYS.notify("reports.new"), KEYS("notify")]


@pytest.mark.parametrize("known", [True, False])
def test_jobs_of_other_queues_wake_it_ten_times_a_second_at_most(
    known: bool, serve: Serve, apis: ShardApis, clock: WorkerClock
) -> None:
    for queue in ["bulk", "mail"][: 1 + known]:
        add(apis, queue)
    served = serve("mail*")
    add(apis, "bulk")
    wake(served)
    served.send_on()
    add(apis, "bulk")
    # This pop ends with the pause, without a notification, although one is there for others.
    assert not wake(served)
    assert shared(apis) == (1, 1)
    clock.ahead += 1
    assert wake(served)
    assert shared(apis) == (0, 1)


def test_its_own_queues_wake_it_during_the_pause(serve: Serve, apis: ShardApis) -> None:
    add(apis, "mail")
    served = serve("mail*")
    add(apis, "mail")
    wake(served)
    apis.add(queue="mail")
    assert served.notification_keys == [KEYS.notify("mail")]
    assert wake(served)


def test_without_a_free_slot_it_gives_every_notification_back(serve: Serve, apis: ShardApis) -> None:
    add(apis, "mail")
    served = serve("mail*")
    apis.add(queue="mail")
    assert not wake(served, wanted=False)
    assert apis.client.llen(KEYS.notify("mail")) == 1
    apis.client.delete(KEYS.notify("mail"))
    assert not wake(served, wanted=False)
    assert shared(apis) == (1, 0)
    assert not served.owes_notification


def test_a_notification_that_may_be_lost_is_sent_on(serve: Serve, apis: ShardApis) -> None:
    served = serve("mail*")
    listen(served)
    add(apis, "bulk")
    served.stop()
    assert served.wakeup_missed
    served.send_on()
    assert shared(apis) == (0, 1)
    apis.client.delete(KEYS("notify_sent_on"))
    listen(served)
    [number] = [each["id"] for each in apis.client.client_list() if each["cmd"] == "blpop"]
    apis.client.client_kill_filter(_id=number)
    with pytest.raises(StoreError):
        wake(served)
    served.send_on()
    assert shared(apis) == (0, 1)


def test_workers_of_named_and_of_all_queues_owe_nothing(serve: Serve, apis: ShardApis) -> None:
    every, named = serve(), QueueListener(apis.shard, ("mail",))
    with closing(named):
        for each in (every, named):
            each.stop()
            each.send_on()
    assert shared(apis) == (0, 0)


def test_a_pop_that_does_not_listen_to_a_new_queue_is_given_up(serve: Serve, apis: ShardApis) -> None:
    served = serve("mail*")
    listen(served)
    appear(apis, "mail.new")
    assert learn(served, apis)
    assert served.wakeup_missed
    apis.client.delete(KEYS("notify"))
    add(apis, "bulk")
    apis.client.delete(KEYS("notify"))
    apis.client.rpush(KEYS.notify("mail.new"), 1)
    assert wake(served)


def test_a_pop_does_not_consume_the_notification_that_its_worker_sends_to_others(serve: Serve, apis: ShardApis) -> None:
    served = serve("mail*")
    listen(served)
    appear(apis, "bulk")
    assert learn(served, apis)
    assert not is_notified(served, apis)
    assert shared(apis) == (1, 0)


def test_a_pop_goes_on_if_a_queue_is_gone(serve: Serve, apis: ShardApis) -> None:
    add(apis, "mail")
    served = serve("mail*")
    descriptor = listen(served)
    apis.client.zrem(KEYS("queues"), "mail")
    apis.client.incr(KEYS("queues_version"))
    assert learn(served, apis)
    assert not served.wakeup_missed
    assert listen(served) == descriptor


def test_it_owes_nothing_if_redis_is_full(serve: Serve, own_apis: ShardApis, clock: WorkerClock) -> None:
    # It would fail in each step, before the request that frees memory.
    served = QueueListener(own_apis.shard, (), QueueFilter.read(["mail*"]), clock=clock)
    with closing(served):
        served.stop()
        own_apis.client.config_set("maxmemory", 1)
        with pytest.raises(StoreError):
            served.send_on()
        served.send_on()


@pytest.fixture
def make_worker(delayq_settings: Any) -> Iterator[Callable[..., Worker]]:
    """Make a worker of a filter of these items, which only a notification wakes, and let it wait for one."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LEASE": 3_600}
    with ExitStack() as made:

        def make(*texts: str, **options: Any) -> Worker:
            queue_filter = QueueFilter.read(texts)
            config = replace(get_store().config.worker, queue_filter=queue_filter, **options)
            worker = made.enter_context(stepped_worker(config=config))
            worker._fallback.check_at = 1e9
            until(lambda: turn(worker), what="the worker to wait")
            return worker

        yield make


def turn(worker: Worker) -> bool:
    """Step, and wait as a service does, but only for a moment; returns whether the worker goes on waiting."""
    if worker.step() == 0:
        return False
    descriptor = worker.listen()
    if descriptor < 0 or not select.select([descriptor], [], [], 0.05)[0]:
        return True
    worker.on_wakeup()
    return False


@pytest.mark.parametrize("behind_pop", [True, False])
def test_a_worker_runs_a_job_of_a_new_queue_at_once(
    behind_pop: bool, make_worker: Callable[..., Worker], client: Redis
) -> None:
    worker = make_worker("mail*", "-mail.slow", claim_behind_pop=behind_pop)
    for queue in ("mail.a", "mail.b"):
        job = tasks.noop.using(queue=queue).enqueue()
        until(lambda job=job: turn(worker) and job.refresh().state == "gone", what="the job to end")
    left = [tasks.noop.using(queue=queue).enqueue() for queue in ("mail.slow", "bulk")]
    until(lambda: turn(worker) and client.exists(KEYS("notify_sent_on")), what="a notification to be sent on")
    assert {job.refresh().state for job in left} == {"ready"}


def test_a_job_of_an_own_queue_is_claimed_behind_the_pop(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker("mail*")
    for _ in range(2):
        job = tasks.noop.using(queue="mail").enqueue()
        until(lambda job=job: turn(worker) and job.refresh().state == "gone", what="the job to end")
    assert worker._session.in_flight is InFlight.BLOCKING


@pytest.mark.parametrize("how", ["quiet", "stop"])
def test_a_worker_that_claims_no_more_gives_back_what_it_consumed(
    how: str, make_worker: Callable[..., Worker], client: Redis
) -> None:
    tasks.noop.using(queue="bulk").enqueue()
    worker = make_worker("mail*")

    def consumes() -> bool:
        if not turn(worker):
            return False
        tasks.noop.using(queue="bulk").enqueue()
        return not client.delete(KEYS("notify"))

    # Not before its pause ends: it has just read a new name.
    until(consumes, what="it to consume the notification of another queue")
    if how == "stop":
        worker.stop()
    else:
        worker.quiet(True)
    until(lambda: worker.step() != 0, what="the worker to end or wait")
    assert client.llen(KEYS("notify")) == 1


@pytest.mark.parametrize("how", ["quiet", "stop"])
def test_a_worker_that_claims_no_more_gives_back_what_it_may_have_lost(
    how: str, make_worker: Callable[..., Worker], client: Redis
) -> None:
    tasks.noop.using(queue="bulk").enqueue()
    worker = make_worker("mail*")
    pops = until(
        lambda: [each["id"] for each in client.client_list() if each["cmd"] == "blpop"], what="the worker to listen"
    )
    client.client_kill_filter(_id=pops[0])
    with pytest.raises(StoreError):
        worker.on_wakeup()
    client.delete(KEYS("notify"))
    if how == "stop":
        worker.stop()
    else:
        worker.quiet(True)
    until(lambda: worker.step() != 0, what="the worker to end or wait")
    assert client.llen(KEYS("notify")) == 1


def test_a_worker_claims_the_best_rank_of_all_queues_that_match(apis: ShardApis) -> None:
    for number in range(6):
        apis.add(number, queue=f"mail.{number % 2}", priority=number)
    served = QueueListener(apis.shard, (), QueueFilter.read(["mail.1", "mail.*"]))
    with closing(served):
        learn(served, apis)
        session = apis.worker().api
        request = session.prepare(queues=served.queues, want=6, settlements=[], strict=served.strict)
        assert [claim.job.args for claim in session.settle_and_claim(request).claims if claim.job] == [
            [number] for number in reversed(range(6))
        ]
