"""The waker on a real server: it hears a bell, and gives a connection up that stays silent beyond its pop."""

import select
from collections.abc import Iterator
from contextlib import closing

import pytest
from redis import Redis

from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.connection import COMMAND_TIMEOUT
from django_delayq.store.waker import BLOCK, Waker
from tests.doors import Doors
from tests.processes import until

#: Seconds until a readable socket is given up.
PATIENCE = 30.0
#: The moment of the first pop, and the last at which its silence is in order.
BEGAN = 1_000.0
LAST = BEGAN + BLOCK + COMMAND_TIMEOUT


@pytest.fixture
def bell(doors: Doors) -> str:
    """The key it listens to."""
    return doors.keys.bell("default")


@pytest.fixture
def silent(doors: Doors) -> Iterator[Waker]:
    """A waker that does not listen yet, of a server that knows the script that jobs come by."""
    doors.add(queue="mail")
    with closing(doors.shard.waker()) as made:
        yield made


@pytest.fixture
def waker(silent: Waker, bell: str) -> Waker:
    """A waker that listens since BEGAN."""
    silent.listen([bell], now=BEGAN)
    return silent


def test_a_bell_is_heard(waker: Waker, bell: str, client: Redis) -> None:
    client.rpush(bell, 1)
    assert select.select([waker], [], [], PATIENCE)[0]
    assert waker.take() == bell


def test_one_that_is_silent_for_longer_than_its_pop_and_an_answer_take_is_made_anew(
    waker: Waker, bell: str, client: Redis
) -> None:
    waker.listen([bell], now=LAST)
    with pytest.raises(StoreUnavailable, match="no answer to a blocking pop"):
        waker.listen([bell], now=LAST + 0.001)
    assert waker.fileno() == -1
    waker.listen([bell], now=LAST + 1)
    # The server may not know yet that the first one is gone, and ring for it.
    until(lambda: client.rpush(bell, 1) and select.select([waker], [], [], 0)[0], what="a bell")
    assert waker.take() == bell


def test_silence_is_counted_from_the_latest_pop(waker: Waker, bell: str, client: Redis) -> None:
    client.rpush(bell, 1)
    assert select.select([waker], [], [], PATIENCE)[0]
    waker.take()
    waker.listen([bell], now=LAST)
    waker.listen([bell], now=LAST + BLOCK)
    assert waker.fileno() != -1
