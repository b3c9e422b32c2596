"""Served: which queues a worker serves, and which bells one that takes no more jobs rings for the next."""

import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from django_delayq.worker.queue_listener import QueueListener
from tests.shard_apis import HOUR, ShardApis

#: Seconds until a readable socket is given up.
PATIENCE = 30.0


@pytest.fixture
def serve(apis: ShardApis) -> Iterator[Callable[..., QueueListener]]:
    """Make what serves the named queues, all by default."""
    with ExitStack() as made:
        yield lambda *queues: made.enter_context(closing(QueueListener(apis.shard, queues)))


def rung(apis: ShardApis, *queues: str) -> list[int]:
    """Return how often the bell of all queues rings, and those of these."""
    return apis.rings(apis.keys("notify"), *map(apis.keys.notify, queues))


def told(served: QueueListener, apis: ShardApis) -> bool:
    """Have it compare what an exchange returns now."""
    return served.mark_if_stale(apis.worker().take(0).queues_version)


def test_one_of_all_queues_reads_their_names_when_their_version_differs(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    served = serve()
    for queue in ("mail", "bulk"):
        apis.add(queue=queue)
        assert told(served, apis)
        served.refresh()
        assert queue in served.queues
        assert not told(served, apis)
    apis.add(queue="mail")
    apis.add(queue="next month", delay=HOUR)
    assert not told(served, apis)


def test_so_it_does_after_a_flush_with_as_many_new_ones(serve: Callable[..., QueueListener], apis: ShardApis) -> None:
    served = serve()
    for queue in ("before", "after"):
        apis.client.flushdb()
        apis.clock.advance(1)
        apis.add(queue=queue)
        assert told(served, apis)
        served.refresh()
        assert served.queues == (queue,)


def test_it_tells_the_next_of_new_queues_and_of_none_twice(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    served = serve()
    apis.add(queue="mail")
    told(served, apis)
    rung(apis)
    served.refresh()
    assert rung(apis) == [1]
    served.refresh()
    assert rung(apis) == [0]


def test_one_of_named_queues_compares_nothing(serve: Callable[..., QueueListener], apis: ShardApis) -> None:
    served = serve("mail")
    apis.add(queue="bulk")
    assert not told(served, apis)
    served.refresh()
    assert served.queues == ("mail",)


def test_one_of_all_queues_passes_on_by_one_bell(serve: Callable[..., QueueListener], apis: ShardApis) -> None:
    apis.add(queue="mail")
    rung(apis, "mail")
    serve().notify_others()
    assert rung(apis, "mail") == [1, 0]


def test_one_of_named_queues_passes_on_by_the_bells_of_those_with_work(
    serve: Callable[..., QueueListener], apis: ShardApis
) -> None:
    apis.add(queue="mail")
    apis.add(queue="bulk", delay=HOUR)
    apis.add(queue="other")
    rung(apis, "mail", "bulk", "other")
    serve("mail", "bulk").notify_others()
    assert rung(apis, "mail", "bulk", "other") == [0, 1, 0, 0]


def test_passing_on_takes_one_round_trip_whatever_the_number_of_queues(
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
def test_a_bell_that_this_worker_does_not_want_is_rung_for_others(
    serve: Callable[..., QueueListener], apis: ShardApis, wanted: bool, queues: tuple[str, ...]
) -> None:
    served = serve(*queues)
    apis.add(queue="mail")
    assert select.select([served.listen(wanted=True, block=10)], [], [], PATIENCE)[0]
    assert served.consume_wakeup(wanted=wanted) == wanted
    assert apis.client.llen(*served.notification_keys) == (not wanted)
