"""The commands on tenants: what they list, pause, resume and cancel, and what they refuse."""

from typing import Any

import pytest
from django.core.management import CommandError

from django_delayq import queue
from django_delayq.management.operating import WRONG_OPTIONS
from tests.integration.commands.operating.printed import read, run
from tests.sample_app import tasks


@pytest.fixture
def queues(delayq_settings: Any, redis_url: str) -> None:
    """Three jobs of acme and one of another tenant in a fair queue."""
    names = {"default": {}, "mail": {"fair": True}}
    delayq_settings.DELAYQ = {"REDIS": redis_url, "ON_COMMIT": False, "QUEUES": names}
    for name in ("acme", "acme", "other"):
        tasks.noop.using(queue="mail", tenant=name).enqueue()
    tasks.noop.using(queue="mail", tenant="acme").after(hours=1).enqueue()


@pytest.mark.usefixtures("queues")
def test_tenants_are_listed_those_with_the_most_jobs_first() -> None:
    found = read("delayq_stats", "--tenants", "mail")
    assert [(each["tenant"], each["waiting"], each["paused"]) for each in found] == [
        ("acme", 3, False),
        ("other", 1, False),
    ]
    lines = run("delayq_stats", "--tenants", "mail", "--limit", "1").splitlines()
    assert len(lines) == 1
    assert "3  acme  next one due since " in lines[0]


@pytest.mark.usefixtures("queues")
def test_a_tenant_is_paused_and_resumed() -> None:
    assert run("delayq_pause", "mail", "--tenant", "acme", "--dry-run") == "Would pause tenant acme in mail.\n"
    assert run("delayq_pause", "mail", "--tenant", "acme", "--yes") == "Paused tenant acme in mail.\n"
    assert read("delayq_pause", "mail", "--tenant", "acme", "--yes") == {"changed": 0, "queues": []}
    assert "acme" in run("delayq_stats", "--tenants", "mail")
    assert "paused" in run("delayq_stats", "--tenants", "mail")
    assert run("delayq_resume", "mail", "--tenant", "acme", "--yes") == "Resumed tenant acme in mail.\n"
    assert queue("mail").tenant("acme").paused is None


@pytest.mark.usefixtures("queues")
def test_a_paused_tenant_without_jobs_is_listed() -> None:
    run("delayq_pause", "mail", "--tenant", "third", "--yes")
    assert [
        (each["tenant"], each["waiting"], each["paused"]) for each in read("delayq_stats", "--tenants", "mail")
    ] == [
        ("acme", 3, False),
        ("other", 1, False),
        ("third", 0, True),
    ]
    assert run("delayq_stats", "--tenants", "mail").splitlines()[-1] == "         0  third  paused"
    run("delayq_resume", "mail", "--tenant", "third", "--yes")
    assert "third" not in run("delayq_stats", "--tenants", "mail")


@pytest.mark.usefixtures("queues")
def test_the_jobs_of_a_tenant_are_cancelled() -> None:
    command = ("delayq_cancel", "--queue", "mail", "--tenant", "acme")
    assert run(*command, "--dry-run") == "Would cancel 3 jobs of tenant acme in mail.\n"
    assert read(*command, "--yes") == {"matched": 3, "changed": 3}
    assert [each["tenant"] for each in read("delayq_stats", "--tenants", "mail")] == ["other"]


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("delayq_stats", "--tenants", "mail", "--limit", "-1"), "--limit must be 0"),
        (("delayq_stats", "--limit", "1"), "--limit needs --tenants"),
        (("delayq_stats", "--tenants", ""), "1 to 200 bytes of text"),
        (("delayq_pause", "default", "--tenant", "acme", "--yes"), "queue 'default' is not fair"),
        (("delayq_pause", "mail", "--tenant", "acme", "--until", "10m"), "--until is for queues"),
        (("delayq_pause", "mail", "--tenant", "", "--yes"), "tenant must be 1 to 200 bytes of text"),
        (("delayq_cancel", "--tenant", "acme", "--yes"), "--tenant needs --queue"),
        (("delayq_cancel", "--queue", "mail", "--tenant", "acme", "--task", "noop"), "takes no other filter"),
    ],
)
def test_wrong_options_are_refused(command: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError, match=words) as raised:
        run(*command)
    assert raised.value.returncode == WRONG_OPTIONS
    assert queue("mail").tenant("acme").counts()["waiting"] == 3
