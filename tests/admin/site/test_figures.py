"""The figures as views of the project: for programs, behind the permission to see the pages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from prometheus_client.parser import text_string_to_metric_families

from django_delayq.monitoring import prometheus
from tests.admin.jobs import HOSTILE, add, add_dead
from tests.admin.reports import tell
from tests.shard_apis import ShardApis
from tests.testing_helpers.docs.pages import page, runs, shown

VIEWS = ("metrics", "stats")
#: A file of the page about monitoring.
PERMISSIONS = page("running/monitoring.md")["shop/permissions.py"]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(
    ("kind", "status"), [("superuser", 200), ("manager", 200), ("viewer", 200), ("staff", 403), ("anonymous", 403)]
)
def test_who_may_see_the_pages_may_see_the_figures(
    kind: str, status: int, name: str, visitor: Callable[..., Client], stock: ShardApis
) -> None:
    address = reverse(f"delayq:{name}")
    for method in ("get", "head"):
        assert getattr(visitor(kind), method)(address).status_code == status
    for method in ("post", "put", "delete", "patch"):
        assert getattr(visitor(kind), method)(address).status_code == 405


@runs(shown("docs/running/monitoring.md", "python", "# shop/permissions.py"))
def test_the_function_that_the_page_shows_decides(
    visitor: Callable[..., Client], stock: ShardApis, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics_page").mkdir()
    (tmp_path / "metrics_page" / "permissions.py").write_text(PERMISSIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("METRICS_TOKEN", "secret")
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"VIEW_PERMISSION": "metrics_page.permissions.may_view_jobs"}}
    browser, address = visitor("anonymous"), reverse("delayq:metrics")
    for token, status in (("", 403), ("Bearer Secret", 403), ("Bearer s\u00e9cret", 403), ("Bearer secret", 200)):
        assert browser.get(address, headers={"Authorization": token}).status_code == status
    assert visitor("viewer").get(address).status_code == 200
    assert visitor("staff").get(address).status_code == 403


def test_the_numbers_are_those_of_the_pages(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail"), add(stock, delay=None, queue="mail"), add_dead(stock)
    tell(stock, queue="mail", done=3, retried=2, slots=4)
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(browser.get(reverse("delayq:metrics")).content.decode())
        for sample in family.samples
    }
    assert found["delayq_jobs", ("queue", "mail"), ("state", "scheduled")] == 1
    assert found["delayq_jobs", ("queue", "mail"), ("state", "ready")] == 1
    assert found["delayq_queue_outcomes_total", ("outcome", "done"), ("queue", "mail")] == 3
    assert found["delayq_queue_start_delay_seconds_count", ("queue", "mail")] == 5
    assert found["delayq_jobs_failed",] == 1
    # One more had claimed the job that failed.
    assert found["delayq_processes", ("kind", "worker")] == 2
    assert found["delayq_slots",] == 4
    stats = browser.get(reverse("delayq:stats")).json()
    assert (stats["scheduled"], stats["ready"], stats["failed"], stats["slots"]) == (1, 1, 1, 4)


def test_hostile_names_break_no_line(browser: Client, stock: ShardApis) -> None:
    add(stock, queue=HOSTILE, task=HOSTILE)
    tell(stock, queue=HOSTILE, task=HOSTILE, done=1)
    text = browser.get(reverse("delayq:metrics")).content.decode()
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert all(name.startswith("delayq_") for name in names)
    assert browser.get(reverse("delayq:stats")).json()["scheduled"] == 1


def test_further_queues_are_told_together(browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_QUEUES", 1)
    for name, number in (("large", 3), ("small", 1), ("tiny", 1)):
        for _ in range(number):
            add(stock, queue=name)
    text = browser.get(reverse("delayq:metrics")).content.decode()
    for queue, number in (("large", 3), ("", 2)):
        assert f'delayq_jobs{{queue="{queue}",state="scheduled"}} {number}.0\n' in text
    assert 'queue="tiny",state' not in text


def test_names_that_print_the_same_stay_apart(browser: Client, stock: ShardApis) -> None:
    names = ("a\nb", "a\\nb", "\ud800", "\\ud800")
    for number, name in enumerate(names, 1):
        for _ in range(number):
            add(stock, queue=name)
        tell(stock, queue=name, done=number)
    samples = [
        (sample.name, sample.value)
        for family in text_string_to_metric_families(browser.get(reverse("delayq:metrics")).content.decode())
        for sample in family.samples
        if "queue" in sample.labels and not {"scheduled", "done"}.isdisjoint(sample.labels.values())
    ]
    for name in ("delayq_jobs", "delayq_queue_outcomes_total"):
        assert {value for sampled, value in samples if sampled == name} >= {1, 2, 3, 4}
    assert {"a\\nb", "a\\\\nb"} <= browser.get(reverse("delayq:stats")).json()["queues"].keys()
