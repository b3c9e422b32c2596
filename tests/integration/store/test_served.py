"""Served: which bells a worker that takes no more jobs rings for the next one."""

import select
from collections.abc import Iterator
from contextlib import closing

import pytest

from django_delayq.served import Served
from tests.doors import Doors

#: Seconds until a readable socket is given up.
PATIENCE = 30.0


@pytest.fixture
def served(doors: Doors) -> Iterator[Served]:
    """All queues there are: mail."""
    doors.add(queue="mail")
    with closing(Served(doors.shard, ())) as made:
        made.counted(1, flushed=False)
        made.refresh()
        assert made.queues == ("mail",)
        doors.client.delete(*made.bells)
        yield made


def test_the_bells_of_the_queues_it_knows_are_rung(served: Served, doors: Doors) -> None:
    served.pass_on()
    assert doors.client.llen(doors.keys.bell("mail")) == 1
    assert not doors.client.exists(doors.keys("bell"))


def test_so_is_the_nameless_one_where_it_has_heard_of_a_queue_and_not_learned_its_name(
    served: Served, doors: Doors
) -> None:
    doors.add(queue="new")
    doors.client.delete(*served.bells)
    served.counted(2, flushed=False)
    served.pass_on()
    assert doors.client.llen(doors.keys("bell")) == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_a_bell_that_this_worker_does_not_want_is_rung_for_others(served: Served, doors: Doors, wanted: bool) -> None:
    served.listen(wanted=True)
    doors.client.rpush(doors.keys.bell("mail"), 1)
    assert select.select([served.listen(wanted=False)], [], [], PATIENCE)[0]
    assert served.hear(wanted=wanted) == wanted
    assert doors.client.llen(doors.keys.bell("mail")) == (not wanted)
