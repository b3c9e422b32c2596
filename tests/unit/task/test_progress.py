"""Progress and stops, as the code of a task sees them."""

from collections.abc import Iterator
from contextvars import Context
from typing import Any

import pytest
from django.contrib.auth.models import User

from django_delayq import current_job
from django_delayq.exceptions import InvalidProgress
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.progress import Progress
from django_delayq.task.context import CurrentJob, set_current_run
from tests.factories import claim_for, numbered


class Link:
    """A link that records what the code of a run reports."""

    def __init__(self) -> None:
        self.should_stop = False
        self.reported: list[Progress] = []

    def report_progress(self, progress: Progress) -> None:
        self.reported.append(progress)


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def job(link: Link) -> CurrentJob:
    def inside() -> CurrentJob | None:
        set_current_run(numbered(1), link)
        return current_job()

    job = Context().run(inside)
    assert job is not None
    return job


def test_a_wrong_progress_is_refused_where_it_is_reported(job: CurrentJob, link: Link) -> None:
    for wrong in ((1.4, ""), (0.5, "x" * 10_240)):
        with pytest.raises(InvalidProgress):
            job.progress(*wrong)
    assert link.reported == []


def test_the_code_sees_a_stop(job: CurrentJob, link: Link) -> None:
    assert not job.should_stop
    link.should_stop = True
    assert job.should_stop


def test_code_that_no_worker_runs_may_report_and_ask(job: CurrentJob) -> None:
    alone = CurrentJob(numbered(1))
    alone.progress(0.5)
    assert list(alone.track([1, 2])) == [1, 2]
    assert not alone.should_stop


@pytest.mark.parametrize("items", [[1, 2, 3], (1, 2, 3), {1: 0, 2: 0, 3: 0}, range(1, 4)])
def test_track_yields_the_items_and_reports_the_first_and_the_last(job: CurrentJob, link: Link, items: object) -> None:
    assert list(job.track(items)) == [1, 2, 3]  # type: ignore[call-overload]
    assert link.reported == [Progress(1 / 3, "1 of 3"), Progress(1.0, "3 of 3")]


def test_track_asks_for_the_total_of_an_iterator_before_the_loop(job: CurrentJob, link: Link) -> None:
    items: Iterator[int] = iter([1, 2])
    with pytest.raises(InvalidProgress, match="cannot know how many items .* has; pass total="):
        job.track(items)
    assert list(job.track(items, total=2)) == [1, 2]
    assert link.reported[-1] == Progress(1.0, "2 of 2")


@pytest.mark.parametrize("total", [0, 1, 5])
def test_a_total_that_is_wrong_by_the_end_does_no_harm(job: CurrentJob, link: Link, total: int) -> None:
    assert list(job.track("abc", total=total)) == ["a", "b", "c"]
    assert all(0 <= each.fraction <= 1 for each in link.reported)


@pytest.mark.parametrize("total", ["x", float("nan"), -1, True, 1.5, [3]])
def test_a_total_that_is_no_number_of_items_is_refused_before_the_loop(job: CurrentJob, link: Link, total: Any) -> None:
    for items in ([1, 2, 3], iter([1, 2, 3])):
        with pytest.raises(InvalidProgress, match=r"^total must be the number of items, .*, got .*; leave it out if"):
            job.track(items, total=total)
    assert link.reported == []


def test_nothing_is_reported_of_no_items(job: CurrentJob, link: Link) -> None:
    assert list(job.track([])) == []
    assert link.reported == []


@pytest.mark.django_db
def test_track_counts_a_queryset_in_the_database_and_reads_its_rows(
    job: CurrentJob, link: Link, django_assert_num_queries: Any
) -> None:
    User.objects.bulk_create(User(username=name) for name in ("ann", "bob", "cid"))
    users = User.objects.order_by("username")
    with django_assert_num_queries(1) as counted:
        tracked = job.track(users)
    assert "COUNT(*)" in counted[0]["sql"]
    with django_assert_num_queries(1) as read:
        assert [user.username for user in tracked] == ["ann", "bob", "cid"]
    assert "username" in read[0]["sql"]
    assert link.reported == [Progress(1 / 3, "1 of 3"), Progress(1.0, "3 of 3")]


@pytest.mark.django_db
def test_track_takes_a_total_instead_of_a_count(job: CurrentJob, link: Link, django_assert_num_queries: Any) -> None:
    User.objects.create(username="ann")
    with django_assert_num_queries(1):
        assert [user.username for user in job.track(User.objects.all().iterator(), total=1)] == ["ann"]
    assert link.reported == [Progress(1.0, "1 of 1")]


def test_the_repr_shows_id_task_and_attempt_alone() -> None:
    job = Job(raw_id=next_id(), shard=0, task="shop.tasks.play", queue="q", args=["an argument"], key="a person")
    claim = claim_for(job, attempts=AttemptHistory(ended=1))
    assert repr(CurrentJob(claim)) == f"<CurrentJob {claim.id} shop.tasks.play attempt 2>"
