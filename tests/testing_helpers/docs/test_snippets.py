"""Snippets: the Python of the pages that is no file of a project runs, from the first block of a page to its last."""

import os
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from django.test import override_settings

from django_delayq.checks import check_middleware, check_redis, check_settings
from django_delayq.task import registry
from django_delayq.testing import DelayQ
from tests.testing_helpers.docs.pages import Block, runs, settings_blocks, shown, snippets
from tests.testing_helpers.tasks import send_reminder

#: Blocks of settings, wherever they are. Those of the README run in its own test.
SETTINGS = settings_blocks()
#: The file of addresses, which needs the admin of these tests.
URLS = shown("docs/running/monitoring.md", "python", "# project/urls.py\n")
Test = TypeVar("Test", bound=Callable[..., None])


class Page:
    """The snippets of a page, which share their names, as in one module."""

    def __init__(self, name: str) -> None:
        self._left = snippets(f"docs/{name}.md")
        self.names: dict[str, Any] = {"__name__": f"pages.{name.replace('/', '_')}"}

    def run(self, **given: Any) -> Any:
        """Run the next snippet, with names that the page leaves to its reader; return all names."""
        self.names |= given
        exec(compile(self._left.pop(0), self.names["__name__"], "exec"), self.names)
        return SimpleNamespace(**self.names)

    def ended(self) -> bool:
        """Whether no snippet is left."""
        return not self._left


@pytest.fixture
def code(request: pytest.FixtureRequest) -> Iterator[Page]:
    """The snippets of a page. A test that leaves one out fails."""
    page = Page(request.param)
    yield page
    assert page.ended(), "The page has a snippet that this test does not run."


def runs_pages(*names: str) -> Callable[[Test], Test]:
    """Give a test the snippets of a page as `code`, one page after another."""

    def tell(test: Test) -> Test:
        told = runs(*(snippets(f"docs/{name}.md") for name in names))(test)
        return pytest.mark.parametrize("code", names, indirect=True)(told)

    return tell


@pytest.fixture(autouse=True)
def own_tasks() -> Iterator[None]:
    """The tasks of the pages are registered until the end of a test."""
    with registry.override():
        yield


def problems(delayq: dict[str, Any], **settings: Any) -> list[Any]:
    """Return what the system check says of a DELAYQ that a page shows."""
    with override_settings(DELAYQ=delayq, **settings):
        return [*check_settings(), *check_redis(), *check_middleware()]


@runs_pages("index")
def test_the_first_page(code: Page, delayq: DelayQ) -> None:
    names = code.run()
    delayq.assert_enqueued(names.close_bids, args=[42], due_in=600)


@runs(snippets("docs/start/installation.md"))
def test_the_start(delayq: DelayQ) -> None:
    first, second = snippets("docs/start/installation.md")
    # The page shows this file, and test_projects.py runs its test.
    task = registry.registered("tests.testing_helpers.tasks.send_reminder")
    for text in (first, second):
        names: dict[str, Any] = {"greet": task}
        exec(text.replace("from hello.tasks import greet\n", ""), names)
    assert names["job"].refresh().state == "gone"
    delayq.assert_enqueued(task, args=["Ann"], due_in=10, count=1)


@runs_pages("queues/limits")
def test_limits(code: Page, delayq: DelayQ, settings: Any) -> None:
    limits = code.run().DELAYQ
    assert problems(limits) == []
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": limits["LIMITS"]}
    code.run()
    delayq.assert_enqueued(code.names["charge"], args=[4711, 25])
    sent: list[Any] = []
    names = code.run(read_orders=lambda account: [account], send=sent.append)
    names.import_orders.enqueue(7)
    delayq.run_due()
    assert sent == [[7]]
    answer = SimpleNamespace(status_code=429, headers={"Retry-After": "30"})
    names = code.run(post=lambda account, amount: answer)
    names.charge.enqueue(1, 1)
    runs = delayq.run_due(errors="retry")
    assert {run.ending for run in runs} == {"retry requested"}
    assert names.limit("stripe").counts()["opens_at"] > delayq.now
    code.run()
    assert not code.names["charge"].is_paused
    code.run()


@runs_pages("queues/tenants")
def test_tenants(code: Page, delayq: DelayQ, settings: Any) -> None:
    fair = code.run().DELAYQ
    assert problems(fair) == []
    settings.DELAYQ = {**settings.DELAYQ, "QUEUES": fair["QUEUES"]}
    code.run()
    assert [job.args for job in delayq.enqueued] == [["acme", 4711], ["acme", 4712]]
    middleware = code.run().AccountMiddleware(lambda request: send_reminder.using(queue="mail").enqueue(7))
    middleware(SimpleNamespace(headers={"X-Account": "acme"}))
    # The last snippet cancels the jobs of that tenant.
    assert code.run().acme.counts()["waiting"] == 0
    assert [job.args for job in delayq.enqueued] == [["acme", 4712]]


@runs_pages("redis/connections")
def test_connections(code: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SENTINEL_PASSWORD", "a")
    monkeypatch.setitem(os.environ, "REDIS_PASSWORD", "b")
    names = code.run()
    names.CACHES["jobs"]["OPTIONS"]["CONNECTION_POOL_KWARGS"]["ssl_ca_certs"] = os.__file__
    assert problems(names.DELAYQ, CACHES=names.CACHES) == []


@runs(block.text for block in SETTINGS)
@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: block.page)
def test_settings_that_say_so(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r'environ\["(\w+)"\]', block.text):
        monkeypatch.setitem(os.environ, name, "redis://localhost:6379/0")
    names: dict[str, Any] = {}
    exec(block.text, names)
    assert names.keys() & {"DELAYQ", "TASKS"}
    assert problems(names.get("DELAYQ", {"REDIS": "redis://localhost:6379/0"}), TASKS=names.get("TASKS", {})) == []


@runs_pages("redis/encryption", "reference/settings", "tasks/options")
def test_settings(code: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "DELAYQ_SECRET", 64 * "s")
    while not code.ended():
        assert problems(code.run(os=os).DELAYQ) == []


@runs(URLS)
def test_the_addresses_of_monitoring() -> None:
    urls: dict[str, Any] = {}
    exec(URLS, urls)
    [mounted] = urls["urlpatterns"]
    paths = {str(pattern.pattern) for pattern in mounted.url_patterns}
    assert str(mounted.pattern) == "delayq/" and {"metrics", "stats.json"} <= paths


@runs_pages("tasks/recurring")
def test_recurring_jobs(code: Page, delayq: DelayQ) -> None:
    names = code.run()
    delayq.declare_schedules(names.refresh_rates, names.send_orders, names.report)
    delayq.run_due()
    assert names.report.schedules.get("morning").is_declared
    assert problems(code.run().DELAYQ) == []
    user = SimpleNamespace(pk=7, time_zone="Asia/Tokyo")
    names = code.run(user=user, users=[user])
    assert [each.name for each in names.report.schedules.iter("digest:")] == ["digest:7"]
    assert problems(code.run().DELAYQ) == []
