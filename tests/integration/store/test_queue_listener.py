"""QueueListener: which queues a worker takes jobs from, and how a worker without a free slot notifies others."""

import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from django_delayq.worker.queue_listener import QueueListener
from tests.shard_apis import HOUR, ShardApis

#: Seconds to wait for a readable socket.
PATIENCE = 30.0


@pytest.fixture
def listen_to(apis: ShardApis) -> Iterator[Callable[..., QueueListener]]:
    """Make a listener of the named queues, or of all."""
    with ExitStack() as stack:
        yield lambda *queues: stack.enter_context(closing(QueueListener(apis.shard, queues)))


def notifications(apis: ShardApis, *queues: str) -> list[int]:
    """Return and delete the numbers of notifications: for all queues, then for each of `queues`."""
    return apis.rings(apis.keys("notify"), *map(apis.keys.notify, queues))


def is_stale(listener: QueueListener, apis: ShardApis) -> bool:
    """Compare the listener's version of the queues with that of a new reply."""
    return listener.mark_if_stale(apis.worker().take(0).queues_version)


def test_a_listener_of_all_queues_reads_their_names_if_their_version_differs(
    listen_to: Callable[..., QueueListener], apis: ShardApis
) -> None:
    listener = listen_to()
    for queue in ("mail", "bulk"):
        apis.add(queue=queue)
        assert is_stale(listener, apis)
        listener.refresh()
        assert queue in listener.queues
        assert not is_stale(listener, apis)
    apis.add(queue="mail")
    apis.add(queue="next month", delay=HOUR)
    assert not is_stale(listener, apis)


def test_it_reads_them_again_after_a_flush_and_as_many_new_queues(
    listen_to: Callable[..., QueueListener], apis: ShardApis
) -> None:
    listener = listen_to()
    for queue in ("before", "after"):
        apis.client.flushdb()
        apis.clock.advance(1)
        apis.add(queue=queue)
        assert is_stale(listener, apis)
        listener.refresh()
        assert listener.queues == (queue,)


def test_it_notifies_others_of_a_new_queue_once(listen_to: Callable[..., QueueListener], apis: ShardApis) -> None:
    listener = listen_to()
    apis.add(queue="mail")
    is_stale(listener, apis)
    notifications(apis)
    listener.refresh()
    assert notifications(apis) == [1]
    listener.refresh()
    assert notifications(apis) == [0]


def test_a_listener_of_named_queues_is_never_stale(listen_to: Callable[..., QueueListener], apis: ShardApis) -> None:
    listener = listen_to("mail")
    apis.add(queue="bulk")
    assert not is_stale(listener, apis)
    listener.refresh()
    assert listener.queues == ("mail",)


def test_a_listener_of_all_queues_notifies_others_by_one_key(
    listen_to: Callable[..., QueueListener], apis: ShardApis
) -> None:
    apis.add(queue="mail")
    notifications(apis, "mail")
    listen_to().notify_others()
    assert notifications(apis, "mail") == [1, 0]


def test_a_listener_of_named_queues_notifies_others_of_those_with_work(
    listen_to: Callable[..., QueueListener], apis: ShardApis
) -> None:
    apis.add(queue="mail")
    apis.add(queue="bulk", delay=HOUR)
    apis.add(queue="other")
    notifications(apis, "mail", "bulk", "other")
    listen_to("mail", "bulk").notify_others()
    assert notifications(apis, "mail", "bulk", "other") == [0, 1, 0, 0]


def test_notifying_others_takes_one_round_trip_whatever_the_number_of_queues(
    listen_to: Callable[..., QueueListener], apis: ShardApis
) -> None:
    listener = listen_to(*(f"q{number}" for number in range(400)))
    listener.notify_others()
    before = apis.client.info("commandstats")
    listener.notify_others()
    after = apis.client.info("commandstats")
    sent = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    assert sent["cmdstat_evalsha"] == 1
    assert not sent.get("cmdstat_rpush") and not sent.get("cmdstat_ltrim")


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("queues", [(), ("mail",)], ids=["all", "named"])
def test_a_notification_that_this_worker_does_not_want_is_left_to_others(
    listen_to: Callable[..., QueueListener], apis: ShardApis, wanted: bool, queues: tuple[str, ...]
) -> None:
    listener = listen_to(*queues)
    apis.add(queue="mail")
    assert select.select([listener.listen(wanted=True, block=10)], [], [], PATIENCE)[0]
    assert listener.consume_wakeup(wanted=wanted) == wanted
    assert apis.client.llen(*listener.notification_keys) == (not wanted)
