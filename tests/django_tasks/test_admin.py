"""Admin: shows jobs of both kinds of task, and jobs with a stored result."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_delayq import get_job
from tests.sample_app import django_tasks

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def shown(staff: Client, job_id: str) -> tuple[int, str]:
    answer = staff.get(reverse("admin:django_delayq_job_detail", args=[job_id]))
    return answer.status_code, answer.content.decode()


def test_a_waiting_django_task_is_shown_with_the_names_of_its_parameters(staff: Client) -> None:
    result = django_tasks.succeed_at.enqueue(7)
    status, page = shown(staff, result.id)
    assert status == 200
    assert "succeed_at" in page
    assert "attempt" in page


def test_a_stored_result_is_shown(staff: Client, drain: Any) -> None:
    done, cancelled = django_tasks.add.enqueue(1234), django_tasks.add.enqueue(4321)
    job = get_job(cancelled.id)
    assert job is not None
    assert job.cancel()
    drain()
    for result, word in ((done, "Done"), (cancelled, "Cancelled")):
        status, page = shown(staff, result.id)
        assert status == 200
        assert word in page
        assert f"add({result.args[0]})" in page
    assert "no job" in shown(staff, "0" * 24 + "-0")[1]
