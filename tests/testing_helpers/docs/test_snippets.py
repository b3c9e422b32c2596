"""Snippets: the Python of the pages that is no file of a project runs, from the first block of a page to its last."""

import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from django_delayq.checks import check_middleware, check_redis, check_settings
from django_delayq.task import registry
from django_delayq.testing import DelayQ
from tests.testing_helpers.docs.pages import PAGES, Block, files_in, settings_blocks, snippets
from tests.testing_helpers.tasks import send_reminder

#: Page -> its snippets. Those of the README, and of the pages that have a test module of their own, run there.
SNIPPETS = {
    name: snippets(name)
    for name in (
        "docs/index.md",
        "docs/queues/limits.md",
        "docs/queues/tenants.md",
        "docs/redis/connections.md",
        "docs/redis/encryption.md",
        "docs/reference/settings.md",
        "docs/start/installation.md",
        "docs/tasks/options.md",
        "docs/tasks/recurring.md",
    )
}
#: Blocks of settings, wherever they are. Those of the README run in its own test.
SETTINGS = settings_blocks()
#: The file of addresses, which needs the admin of these tests.
URLS = files_in(PAGES["docs/running/monitoring.md"])["project/urls.py"]


class Page:
    """The snippets of a page, which share their names, as in one module."""

    def __init__(self, name: str) -> None:
        self._left = list(SNIPPETS[f"docs/{name}.md"])
        self.names: dict[str, Any] = {"__name__": f"pages.{name.replace('/', '_')}"}

    def run(self, **given: Any) -> Any:
        """Run the next snippet, with names that the page leaves to its reader; return all names."""
        self.names |= given
        exec(compile(self._left.pop(0), self.names["__name__"], "exec"), self.names)
        return SimpleNamespace(**self.names)

    def ended(self) -> bool:
        """Whether no snippet is left."""
        return not self._left


@pytest.fixture(autouse=True)
def own_tasks() -> Iterator[None]:
    """The tasks of the pages are registered until the end of a test."""
    with registry.override():
        yield


def problems(delayq: dict[str, Any], **settings: Any) -> list[Any]:
    """Return what the system check says of a DELAYQ that a page shows."""
    with override_settings(DELAYQ=delayq, **settings):
        return [*check_settings(), *check_redis(), *check_middleware()]


def test_the_first_page(delayq: DelayQ) -> None:
    shown = Page("index")
    names = shown.run()
    delayq.assert_enqueued(names.close_bids, args=[42], due_in=600)
    assert shown.ended()


def test_the_start(delayq: DelayQ) -> None:
    first, second = SNIPPETS["docs/start/installation.md"]
    # The page shows this file, and test_projects.py runs its test.
    task = registry.registered("tests.testing_helpers.tasks.send_reminder")
    for text in (first, second):
        names: dict[str, Any] = {"greet": task}
        exec(text.replace("from hello.tasks import greet\n", ""), names)
    assert names["job"].refresh().state == "gone"
    delayq.assert_enqueued(task, args=["Ann"], due_in=10, count=1)


def test_limits(delayq: DelayQ, settings: Any) -> None:
    shown = Page("queues/limits")
    limits = shown.run().DELAYQ
    assert problems(limits) == []
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": limits["LIMITS"]}
    shown.run()
    delayq.assert_enqueued(shown.names["charge"], args=[4711, 25])
    sent: list[Any] = []
    names = shown.run(read_orders=lambda account: [account], send=sent.append)
    names.import_orders.enqueue(7)
    delayq.run_due()
    assert sent == [[7]]
    answer = SimpleNamespace(status_code=429, headers={"Retry-After": "30"})
    names = shown.run(post=lambda account, amount: answer)
    names.charge.enqueue(1, 1)
    runs = delayq.run_due(errors="retry")
    assert {run.ending for run in runs} == {"retry requested"}
    assert names.limit("stripe").counts()["opens_at"] > delayq.now
    shown.run()
    assert not shown.names["charge"].is_paused
    shown.run()
    assert shown.ended()


def test_tenants(delayq: DelayQ, settings: Any) -> None:
    shown = Page("queues/tenants")
    fair = shown.run().DELAYQ
    assert problems(fair) == []
    settings.DELAYQ = {**settings.DELAYQ, "QUEUES": fair["QUEUES"]}
    shown.run()
    assert [job.args for job in delayq.enqueued] == [["acme", 4711], ["acme", 4712]]
    middleware = shown.run().AccountMiddleware(lambda request: send_reminder.using(queue="mail").enqueue(7))
    middleware(SimpleNamespace(headers={"X-Account": "acme"}))
    # The last snippet cancels the jobs of that tenant.
    assert shown.run().acme.counts()["waiting"] == 0
    assert [job.args for job in delayq.enqueued] == [["acme", 4712]]
    assert shown.ended()


def test_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SENTINEL_PASSWORD", "a")
    monkeypatch.setitem(os.environ, "REDIS_PASSWORD", "b")
    shown = Page("redis/connections")
    names = shown.run()
    names.CACHES["jobs"]["OPTIONS"]["CONNECTION_POOL_KWARGS"]["ssl_ca_certs"] = os.__file__
    assert problems(names.DELAYQ, CACHES=names.CACHES) == []
    assert shown.ended()


@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: block.page)
def test_settings_that_say_so(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r'environ\["(\w+)"\]', block.text):
        monkeypatch.setitem(os.environ, name, "redis://localhost:6379/0")
    names: dict[str, Any] = {}
    exec(block.text, names)
    assert names.keys() & {"DELAYQ", "TASKS"}
    assert problems(names.get("DELAYQ", {"REDIS": "redis://localhost:6379/0"}), TASKS=names.get("TASKS", {})) == []


@pytest.mark.parametrize("page", ["redis/encryption", "reference/settings", "tasks/options"])
def test_settings(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "DELAYQ_SECRET", 64 * "s")
    shown = Page(page)
    while not shown.ended():
        assert problems(shown.run(os=os).DELAYQ) == []


def test_the_addresses_of_monitoring() -> None:
    urls: dict[str, Any] = {}
    exec(URLS, urls)
    [mounted] = urls["urlpatterns"]
    paths = {str(pattern.pattern) for pattern in mounted.url_patterns}
    assert str(mounted.pattern) == "delayq/" and {"metrics", "stats.json"} <= paths


def test_recurring_jobs(delayq: DelayQ) -> None:
    shown = Page("tasks/recurring")
    names = shown.run()
    delayq.declare_schedules(names.refresh_rates, names.send_orders, names.report)
    delayq.run_due()
    assert names.report.schedules.get("morning").is_declared
    assert problems(shown.run().DELAYQ) == []
    user = SimpleNamespace(pk=7, time_zone="Asia/Tokyo")
    names = shown.run(user=user, users=[user])
    assert [each.name for each in names.report.schedules.iter("digest:")] == ["digest:7"]
    assert problems(shown.run().DELAYQ) == []
    assert shown.ended()
