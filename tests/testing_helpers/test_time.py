"""Time in a test: which jobs are enqueued, and which run when time advances, without a sleep."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from django_delayq import RetryPolicy, current_job, enqueue_many, execute_later
from django_delayq.exceptions import DelayQError, DelayTypeError, DelayValueError, TaskTimeout
from django_delayq.signals import job_dead_lettered, job_enqueued, job_finished, job_started
from django_delayq.task import registry
from django_delayq.testing import DelayQ, TaskFailed
from tests.one_by_one import one_by_one
from tests.testing_helpers.tasks import (
    ask_the_bank,
    charge,
    close_sale,
    give_up,
    pay,
    poll,
    request_reminder,
    run_on,
    send_reminder,
    tick,
    wait_for_answer,
)

MINUTE = timedelta(minutes=1)


def test_enqueued_jobs_are_listed_in_the_order_in_which_they_will_run(delayq: DelayQ) -> None:
    send_reminder.after(hours=2).enqueue(3)
    send_reminder.after(hours=1).enqueue(2)
    close_sale.enqueue(1)
    first, second, third = delayq.enqueued
    assert (first.task, first.args, first.queue, first.state) == (
        "tests.testing_helpers.tasks.close_sale",
        [1],
        "default",
        "ready",
    )
    assert [job.args for job in (second, third)] == [[2], [3]]
    assert (second.queue, second.priority, second.state, second.attempt) == ("mail", 10, "scheduled", 1)
    assert second.due is not None and abs(second.due - delayq.now - 60 * MINUTE) < MINUTE


def test_the_repr_of_a_job_is_readable(delayq: DelayQ) -> None:
    with time_machine.travel(delayq.now, tick=False):
        send_reminder.using(key="r7").after(minutes=90).enqueue(7, channel="mail")
        assert repr(delayq.enqueued) == (
            "[<tests.testing_helpers.tasks.send_reminder(7, channel='mail') due in 1 h 30 min in queue 'mail', "
            "priority 10, key 'r7'>]"
        )


def test_due_jobs_run_and_later_ones_wait(delayq: DelayQ, calls: list[Any]) -> None:
    send_reminder.after(minutes=10).enqueue(1)
    send_reminder.enqueue(2)
    assert calls == []
    [ran] = delayq.run_due()
    assert (ran.task, ran.args, ran.attempt, ran.ending) == (
        "tests.testing_helpers.tasks.send_reminder",
        [2],
        1,
        "succeeded",
    )
    assert calls == [(2, "letter")]
    assert delayq.run_due() == []
    delayq.advance(minutes=10)
    assert calls == [(2, "letter")]
    delayq.run_due()
    assert calls == [(2, "letter"), (1, "letter")]
    assert delayq.enqueued == []
    assert [job.args for job in delayq.ran] == [[2], [1]]


def test_due_jobs_run_in_the_same_order_as_in_production(delayq: DelayQ, calls: list[Any]) -> None:
    for number, priority in enumerate((-5, 0, 100, 0)):
        send_reminder.using(priority=priority).enqueue(number)
    ask_the_bank.using(priority=50).enqueue(99)
    delayq.run_due()
    assert calls == [(2, "letter"), 99, (1, "letter"), (3, "letter"), (0, "letter")]


def test_a_job_in_a_new_queue_runs_by_its_priority(delayq: DelayQ, calls: list[Any]) -> None:
    send_reminder.enqueue(1)
    delayq.run_due()
    send_reminder.enqueue(2)
    send_reminder.using(queue="new", priority=90).enqueue(3)
    delayq.run_due()
    request_reminder.using(priority=20).enqueue("newer", 4)
    send_reminder.enqueue(5)
    delayq.run_due()
    assert [call[0] for call in calls] == [1, 3, 2, 4, 5]


def test_run_due_leaves_later_jobs_that_tasks_enqueue(delayq: DelayQ, calls: list[Any]) -> None:
    close_sale.enqueue(1)
    delayq.run_due()
    assert calls == [1]
    assert [job.args for job in delayq.enqueued] == [[1]]
    delayq.assert_enqueued(send_reminder, args=[1], due_in=3600)


def test_advance_with_run_runs_each_job_at_its_own_due_time(delayq: DelayQ, calls: list[Any]) -> None:
    close_sale.after(minutes=30).enqueue(1)
    assert [job.task.rsplit(".")[-1] for job in delayq.advance(minutes=89, run=True)] == ["close_sale"]
    # The reminder's hour began when the sale closed, not at the end of the advance.
    delayq.assert_enqueued(send_reminder, due_in=MINUTE)
    [ran] = delayq.advance(MINUTE, run=True)
    assert ran.task.endswith("send_reminder")


def test_drain_advances_time_until_no_job_is_left(delayq: DelayQ, calls: list[Any]) -> None:
    before = delayq.now
    close_sale.after(days=3).enqueue(1)
    assert len(delayq.drain()) == 2
    assert calls == [1, (1, "letter")]
    assert delayq.now - before >= timedelta(days=3, hours=1)


def test_draining_a_task_that_enqueues_itself_is_an_error(delayq: DelayQ, calls: list[Any]) -> None:
    tick.enqueue()
    with pytest.raises(DelayQError, match="More than 5 jobs ran. Does a task enqueue itself"):
        delayq.drain(limit=5)
    assert len(delayq.advance(minutes=3, run=True)) == 3


def test_time_can_advance_to_a_moment(delayq: DelayQ, calls: list[Any]) -> None:
    moment = timezone.now() + timedelta(days=6)
    send_reminder.at(moment).enqueue(7)
    delayq.advance_to(moment - MINUTE, run=True)
    assert calls == []
    delayq.advance_to(moment, run=True)
    assert calls == [(7, "letter")]
    with pytest.raises(DelayQError, match="needs a moment in the future"):
        delayq.advance_to(moment - MINUTE)


@pytest.mark.parametrize(
    "wrong", [{}, {"delay": 1, "minutes": 1}, {"delay": -1}, {"minutes": -1}, {"delay": "1"}, {"years": 1}]
)
def test_wrong_times_are_refused(delayq: DelayQ, wrong: Any) -> None:
    with pytest.raises((DelayTypeError, DelayValueError, TypeError)):
        delayq.advance(**wrong)


def test_time_advances_no_further_than_jobs_can_wait(delayq: DelayQ, calls: list[Any]) -> None:
    send_reminder.enqueue(1)
    for _ in range(2):
        with pytest.raises(DelayValueError, match="2255"):
            delayq.advance(timedelta.max)
        # The clock still works after the error.
        delayq.advance(days=365 * 100)
    delayq.assert_enqueued(send_reminder, due_in=0)
    assert len(delayq.run_due()) == 1


def test_an_error_in_a_task_is_raised_and_the_job_settled_as_in_production(delayq: DelayQ, calls: list[Any]) -> None:
    charge.enqueue(5)
    send_reminder.using(priority=-1).enqueue(1)
    with pytest.raises(ValueError, match="no money: 5") as raised:
        delayq.run_due()
    assert raised.value.__notes__[-1] == (
        "This ended a job: <tests.testing_helpers.tasks.charge(5) failed, again in 2 s>; "
        "errors='retry' leaves it to the retry policy."
    )
    delayq.assert_enqueued(charge, args=[5], due_in=2)
    assert [job.attempt for job in delayq.enqueued if job.task.endswith("charge")] == [2]
    # The other due job is untouched.
    assert [job.args for job in delayq.run_due()] == [[1]]


def test_errors_can_be_left_to_the_retry_policy(delayq: DelayQ, calls: list[Any]) -> None:
    charge.enqueue(5, fails=2)
    with time_machine.travel(delayq.now, tick=False):
        [ran] = delayq.run_due(errors="retry")
        assert (ran.ending, ran.retry_in) == ("failed", timedelta(seconds=2))
        assert "ValueError: no money: 5" in ran.error
        assert delayq.advance(seconds=1.9, run=True, errors="retry") == []
        assert delayq.advance(seconds=0.1, run=True, errors="retry") != []
    assert [job.ending for job in delayq.drain(errors="retry")] == ["succeeded"]
    assert calls == [(5, 1), (5, 2), (5, 3)]


def test_the_last_attempt_leaves_a_dead_letter_with_its_error(delayq: DelayQ) -> None:
    charge.enqueue(5)
    assert [job.retry_in for job in delayq.drain(errors="retry")] == [timedelta(seconds=2), timedelta(seconds=4), None]
    assert delayq.enqueued == []
    assert repr(delayq.ran[-1]) == "<tests.testing_helpers.tasks.charge(5) failed, attempt 3, dead>"
    [dead] = delayq.dead
    assert (dead.task, dead.args, dead.state, dead.attempt) == ("tests.testing_helpers.tasks.charge", [5], "dead", 3)
    assert "no money: 5" in dead.error


def test_a_retry_or_dead_letter_on_request_is_no_error(delayq: DelayQ, calls: list[Any]) -> None:
    wait_for_answer.enqueue()
    give_up.enqueue()
    assert [job.ending for job in delayq.run_due()] == ["retry requested", "gave up"]
    delayq.assert_enqueued(wait_for_answer, due_in=60)
    delayq.drain()
    assert calls == [1, 2]
    assert [job.task for job in delayq.dead] == ["tests.testing_helpers.tasks.give_up"]


def test_a_job_of_an_unknown_task_is_an_error(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    send_reminder.enqueue(1)
    with monkeypatch.context() as patched, pytest.raises(TaskFailed, match="No task is registered as"):
        patched.delitem(registry._tasks, "tests.testing_helpers.tasks.send_reminder")
        delayq.run_due()
    # It waits for a worker that knows it, and no attempt is counted.
    assert [(ran.attempt, ran.ending) for ran in delayq.advance(seconds=1, run=True)] == [(1, "succeeded")]


def test_a_snooze_is_no_error_and_no_attempt(delayq: DelayQ) -> None:
    job = poll.using(key="p", retry=RetryPolicy(max_attempts=1)).enqueue(answered_after=7)
    assert [(ran.ending, ran.retry_in) for ran in delayq.run_due()] == [("snoozed", 5 * MINUTE)]
    [waiting] = delayq.enqueued
    assert (waiting.id, waiting.key, waiting.attempt) == (job.id, "p", 1)
    assert waiting.due_in is not None and 4 * MINUTE < waiting.due_in <= 5 * MINUTE
    assert "snoozed, again in 5 min" in repr(delayq.ran[0])
    runs = delayq.advance(minutes=35, run=True)
    assert [ran.ending for ran in runs] == ["snoozed"] * 6 + ["succeeded"]
    assert {ran.attempt for ran in delayq.ran} == {1} and delayq.enqueued == delayq.dead == []


def test_a_job_that_no_worker_knows_for_a_day_is_dead(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    send_reminder.enqueue(1)
    with monkeypatch.context() as patched:
        patched.delitem(registry._tasks, "tests.testing_helpers.tasks.send_reminder")
        runs = delayq.advance(minutes=2, run=True, errors="retry")
        assert [ran.retry_in.total_seconds() for ran in runs[:7] if ran.retry_in] == [1, 2, 4, 8, 16, 30, 30]
        assert {ran.attempt for ran in runs} == {1}
        delayq.advance(days=1)
        [last] = delayq.run_due(errors="retry")
    assert (last.ending, last.retry_in) == ("unknown task", None)
    assert "No task is registered as" in delayq.dead[0].error


def test_keys_are_unique_as_in_production(delayq: DelayQ) -> None:
    first = send_reminder.using(key="r", delay=60).enqueue(1)
    second = send_reminder.using(key="r", delay=60).enqueue(2)
    assert (second.id, second.created) == (first.id, False)
    delayq.assert_enqueued(send_reminder, key="r", count=1)
    delayq.drain()
    assert send_reminder.using(key="r").enqueue(3).created


def test_handles_use_the_fake_clock(delayq: DelayQ) -> None:
    job = send_reminder.after(minutes=10).enqueue(1)
    assert job.state == "scheduled"
    assert job.due is not None and abs(job.due - delayq.now - 10 * MINUTE) < MINUTE
    job.reschedule(delay=20 * 60)
    assert delayq.advance(minutes=19, run=True) == []
    delayq.advance(minutes=1, run=True)
    assert job.refresh().state == "gone"


def test_signals_are_sent_as_in_production(delayq: DelayQ) -> None:
    received: list[str] = []
    signals = {"enqueued": job_enqueued, "started": job_started, "finished": job_finished, "dead": job_dead_lettered}
    receivers = {name: lambda name=name, **_: received.append(name) for name in signals}  # type: ignore[misc]
    for name, signal in signals.items():
        signal.connect(receivers[name])
    give_up.enqueue()
    delayq.run_due()
    for name, signal in signals.items():
        signal.disconnect(receivers[name])
    assert received == ["enqueued", "started", "finished", "dead"]


def test_coroutine_functions_run(delayq: DelayQ, calls: list[Any]) -> None:
    ask_the_bank.after(minutes=1).enqueue(7)
    delayq.drain()
    assert calls == [7]


def test_jobs_of_every_way_to_enqueue_are_listed(delayq: DelayQ, calls: list[Any]) -> None:
    enqueue_many([send_reminder.after(60).job(number) for number in range(600)])
    send_reminder.after(hours=1).enqueue_many([(1,), (2,)])
    execute_later("bulk", "tests.testing_helpers.tasks.send_reminder", [7], delay=600)
    assert len(delayq.enqueued) == 603
    delayq.assert_enqueued(send_reminder, args=[7], queue="bulk", due_in=600)
    assert len(delayq.drain()) == 603


def test_large_arguments_are_kept_in_full_and_shortened_in_texts(delayq: DelayQ) -> None:
    text = "x" * 100_000
    send_reminder.enqueue(1, channel=text)
    delayq.assert_enqueued(send_reminder, kwargs={"channel": text})
    assert len(repr(delayq.enqueued)) < 1_000
    delayq.run_due()
    execute_later("default", "tests.testing_helpers.tasks.give_up", [])
    charge.using(retry=RetryPolicy(max_attempts=1)).enqueue(text)  # type: ignore[arg-type]
    delayq.run_due(errors="retry")
    assert [job.args for job in delayq.dead] == [[], [text]]


def test_a_paused_queue_keeps_its_jobs(delayq: DelayQ) -> None:

    one_by_one().pause("mail", by="ann")
    send_reminder.enqueue(1)
    assert delayq.drain() == []
    one_by_one().resume("mail")
    assert len(delayq.drain()) == 1


def test_the_fake_clock_follows_time_machine(delayq: DelayQ, calls: list[Any]) -> None:
    start = datetime(2030, 1, 1, 9, tzinfo=UTC)
    with time_machine.travel(start, tick=False) as travel:
        send_reminder.at(start + timedelta(days=1)).enqueue(1)
        send_reminder.after(days=2).enqueue(2)
        [first, second] = delayq.enqueued
        assert (first.due_in, second.due) == (timedelta(days=1), start + timedelta(days=2))
        travel.shift(timedelta(days=1))
        delayq.run_due()
        assert calls == [(1, "letter")]
        delayq.advance(days=1, run=True)
        assert calls == [(1, "letter"), (2, "letter")]


def test_a_task_cannot_run_other_jobs(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.testing_helpers import tasks

    class Meddling(list[Any]):
        def append(self, item: Any) -> None:
            delayq.run_due()

    monkeypatch.setattr(tasks, "calls", Meddling())
    send_reminder.enqueue(1)
    with pytest.raises(DelayQError, match="only by the test itself"):
        delayq.run_due()


def test_errors_must_be_raise_or_retry(delayq: DelayQ) -> None:
    with pytest.raises(ValueError, match="errors must be 'raise' or 'retry', got 'ignore'"):
        delayq.run_due(errors="ignore")  # type: ignore[arg-type]


def test_sensitive_arguments_are_not_shown(delayq: DelayQ) -> None:
    pay.enqueue("4111 1111")
    assert "4111" not in repr(delayq.enqueued)
    assert delayq.enqueued[0].args == ["4111 1111"]
    assert "4111" not in repr(delayq.run_due())


def test_a_time_limit_applies_in_tests_too(delayq: DelayQ) -> None:
    run_on.enqueue()
    with pytest.raises(TaskTimeout):
        delayq.run_due()
    assert [job.attempt for job in delayq.dead] == [1]


def test_interrupts_are_never_swallowed(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.testing_helpers import tasks

    class Interrupted(list[Any]):
        def append(self, item: Any) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "calls", Interrupted())
    send_reminder.using(retry=RetryPolicy(max_attempts=1)).enqueue(1)
    with pytest.raises(KeyboardInterrupt):
        delayq.run_due(errors="retry")


def test_after_a_run_there_is_no_current_job(delayq: DelayQ) -> None:
    send_reminder.enqueue(1)
    delayq.run_due()
    assert current_job() is None


def test_a_result_is_kept_if_store_result_is_set(delayq: DelayQ) -> None:
    job = request_reminder.using(store_result=True).enqueue("mail", 1)
    delayq.drain()
    delayq.advance(days=2)
    assert job.refresh().state == "done"
    assert job.result is None


def test_the_longest_delay_counts_from_the_time_of_the_test(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "MAX_DELAY": timedelta(days=10)}
    with pytest.raises(DelayValueError, match="MAX_DELAY"):
        send_reminder.at(delayq.now + timedelta(days=15))
    delayq.advance(days=9)
    send_reminder.at(delayq.now + timedelta(days=9)).enqueue(1)
    assert [job.args for job in delayq.enqueued] == [[1]]
