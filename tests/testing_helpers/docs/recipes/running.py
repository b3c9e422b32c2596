"""Tests of docs/recipes/running.md. They run in a project that has the files which the page shows."""

import pytest
from billing import tasks as billing
from mailings import tasks as mailings
from tickets import tasks as tickets

from django_delayq.exceptions import UnknownTask


def test_urgent_tickets_come_first(delayq):
    tickets.archive.enqueue(1)
    tickets.answer.enqueue(2)
    tickets.answer_now(3)
    assert [run.args for run in delayq.run_due()] == [[3], [2], [1]]


def test_ready_jobs_move(delayq):
    mailings.send.enqueue(1)
    mailings.send.after(hours=1).enqueue(2)
    assert mailings.make_room() == 1
    assert sorted((job.args, job.queue) for job in delayq.enqueued) == [([1], "bulk"), ([2], "mail")]


def test_a_bill_is_enqueued_by_name(delayq):
    billing.from_webhook("billing.tasks.send_bill", 7)
    with pytest.raises(UnknownTask):
        billing.from_webhook("os.remove", 7)
    [job] = delayq.enqueued
    assert (job.task, job.args, job.queue) == ("billing.tasks.send_bill", [7], "billing")
