"""`task.schedules`: schedules are set, read, changed and deleted by their names."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_delayq.exceptions import UnknownSchedule
from django_delayq.testing import DelayQ
from tests.sample_app.tasks import noop

NINE = datetime(2027, 1, 4, 9, tzinfo=UTC)


@pytest.fixture
def delayq() -> Any:
    """A queue of this test, at nine on a Monday."""
    with DelayQ() as queue:
        queue.advance_to(NINE)
        yield queue


def test_a_schedule_runs_its_task(delayq: DelayQ) -> None:
    noop.schedules.set("digest:42", every=timedelta(hours=1), args=[42], kwargs={"name": "a"})
    ran = delayq.advance(hours=3, run=True)
    assert [(run.args, run.kwargs) for run in ran] == [([42], {"name": "a"})] * 3


def test_what_a_schedule_says(delayq: DelayQ) -> None:
    assert noop.schedules.get("morning") is None
    noop.schedules.set("morning", cron="0 9 * * mon-fri", tz="Europe/Berlin")
    found = noop.schedules.get("morning")
    assert found
    assert (found.name, found.task, found.is_paused, found.last, found.runs) == ("morning", noop.name, False, None, [])
    assert [each.isoformat() for each in found.next(2)] == ["2027-01-05T09:00:00+01:00", "2027-01-06T09:00:00+01:00"]
    assert found.job_id is None
    delayq.advance(days=1, run=True)
    found = found.refresh()
    assert found
    assert found.last
    assert found.last.outcome == "done"
    assert found.job_id
    assert found.delete()
    assert found.refresh() is None
    assert not found.delete()
    with pytest.raises(UnknownSchedule):
        found.pause()
    with pytest.raises(UnknownSchedule, match="has no schedule 'morning'"):
        noop.schedules.resume("morning")
