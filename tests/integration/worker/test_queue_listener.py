"""Queue listener: which queues a worker serves, and which workers it notifies if it claims no more."""

import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from django_delayq.worker.claiming.queue_listener import QueueListener
from tests.shard_apis import HOUR, ShardApis

#: Seconds to wait for a readable socket.
PATIENCE = 30.0


@pytest.fixture
def serve(apis: ShardApis) -> Iterator[Callable[..., QueueListener]]:
    """Make a listener of the named queues; of all by default."""
    with ExitStack() as made:
        yield lambda *queues: made.enter_context(closing(QueueListener(apis.shard, queues)))


def notified(apis: ShardApis, *queues: str) -> list[int]:
    """Return the number of notifications for all queues, and for each of these."""
    return apis.notifications(apis.keys("notify"), *map(apis.keys.notify, queues))


def reported(served: QueueListener, apis: ShardApis) -> bool:
    """Pass it the version that an exchange returns now."""
    return served.mark_if_stale(apis.worker().take(0).queues_version)


def test_a_worker_of_all_queues_reads_their_names_when_the_version_differs(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    served = serve()
    for queue in ("mail", "bulk"):
        apis.add(queue=queue)
        assert reported(served, apis)
        served.refresh()
        assert queue in served.queues
        assert not reported(served, apis)
    apis.add(queue="mail")
    apis.add(queue="next month", delay=HOUR)
    assert not reported(served, apis)


def test_it_reads_the_names_again_after_a_flush_with_as_many_new_queues(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    served = serve()
    for queue in ("before", "after"):
        apis.client.flushdb()
        apis.clock.advance(1)
        apis.add(queue=queue)
        assert reported(served, apis)
        served.refresh()
        assert served.queues == (queue,)


def test_it_notifies_the_next_worker_of_new_queues_once(serve: Callable[..., QueueListener], apis: ShardApis) -> None:
    served = serve()
    apis.add(queue="mail")
    reported(served, apis)
    notified(apis)
    served.refresh()
    assert notified(apis) == [1]
    served.refresh()
    assert notified(apis) == [0]


def test_a_worker_of_named_queues_does_not_read_names(serve: Callable[..., QueueListener], apis: ShardApis) -> None:
    served = serve("mail")
    apis.add(queue="bulk")
    assert not reported(served, apis)
    served.refresh()
    assert served.queues == ("mail",)


def test_a_worker_of_all_queues_notifies_others_with_one_notification(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    apis.add(queue="mail")
    notified(apis, "mail")
    serve().notify_others()
    assert notified(apis, "mail") == [1, 0]


def test_a_worker_of_named_queues_notifies_others_of_those_with_work(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    apis.add(queue="mail")
    apis.add(queue="bulk", delay=HOUR)
    apis.add(queue="other")
    notified(apis, "mail", "bulk", "other")
    serve("mail", "bulk").notify_others()
    assert notified(apis, "mail", "bulk", "other") == [0, 1, 0, 0]


def test_notifying_others_takes_one_round_trip_for_any_number_of_queues(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    served = serve(*(f"q{number}" for number in range(400)))
    served.notify_others()
    before = apis.client.info("commandstats")
    served.notify_others()
    after = apis.client.info("commandstats")
    sent = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    assert sent["cmdstat_evalsha"] == 1
    assert not sent.get("cmdstat_rpush") and not sent.get("cmdstat_ltrim")


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("queues", [(), ("mail",)], ids=["all", "named"])
def test_an_unwanted_notification_is_passed_to_others(
    serve: Callable[..., QueueListener], apis: ShardApis, wanted: bool, queues: tuple[str, ...]
) -> None:
    served = serve(*queues)
    apis.add(queue="mail")
    assert select.select([served.listen(wanted=True, block=10)], [], [], PATIENCE)[0]
    assert served.consume_wakeup(wanted=wanted) == wanted
    assert sum(map(apis.client.llen, served.notification_keys)) == (not wanted)
