"""Fixtures of the admin's tests: five kinds of users on two sites, and an empty Redis behind the pages.

`visitor("viewer").get(page("failed"))`; `stock` has the APIs of the store behind the pages, with Redis's own clock.
"""

from collections.abc import Callable, Iterator
from time import time_ns
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import translation

from django_delayq.clock import ServerClock
from django_delayq.task import registry
from tests.admin.jobs import add, add_dead, claim
from tests.sample_app.tasks import catch_all, noop
from tests.shard_apis import ShardApis

#: Kind of user -> permissions; None: no account at all.
KINDS: dict[str, tuple[str, ...] | None] = {
    "superuser": (),
    "manager": ("view_delayq", "manage_delayq"),
    "viewer": ("view_delayq",),
    "staff": (),
    "anonymous": None,
}
SITES = ("admin", "second")


@pytest.fixture(autouse=True)
def _project(db: None, delayq_settings: Any, bounds: Callable[..., None]) -> Iterator[None]:
    """Give every test a database, an empty Redis, and scans of lists that no slow moment of the machine ends."""
    bounds()
    yield
    # LocaleMiddleware leaves the language of the last request active in the thread.
    translation.deactivate()


@pytest.fixture
def account() -> Callable[..., User | AnonymousUser]:
    """Create a user of a kind, with further permissions: `account("viewer", "view_delayq_payload")`."""

    def make(kind: str, *more: str) -> User | AnonymousUser:
        names = KINDS[kind]
        if names is None:
            return AnonymousUser()
        user, _ = User.objects.get_or_create(username=kind, is_staff=True, is_superuser=kind == "superuser")
        user.user_permissions.set(Permission.objects.filter(codename__in=[*names, *more]))
        # A fresh object, because a user object caches its permissions.
        return User.objects.get(pk=user.pk)

    return make


@pytest.fixture
def visitor(account: Callable[..., User | AnonymousUser]) -> Callable[..., Client]:
    """Return a client logged in as a kind of user: `visitor("viewer").get(…)`."""

    def make(kind: str = "superuser", *more: str) -> Client:
        browser, user = Client(), account(kind, *more)
        if isinstance(user, User):
            browser.force_login(user)
        return browser

    return make


@pytest.fixture
def browser(visitor: Callable[..., Client]) -> Client:
    """A client logged in as a superuser."""
    return visitor("superuser")


def page(name: str, *args: object, site: str = "admin", **query: object) -> str:
    """Return the address of a page: `page("failed", site="second", queue="mail")`."""
    full = "queue_changelist" if name == "overview" else name
    return reverse(
        f"admin:django_delayq_{full}",
        args=args,
        current_app=site,
        query={key: str(value) for key, value in query.items()} or None,
    )


class RedisClock(ServerClock):
    """Redis's own time, which is also this process's time on one machine."""

    @property
    def now_us(self) -> int:
        """The time that tests compute due times from."""
        return time_ns() // 1_000


@pytest.fixture
def stock(redis_url: str) -> Iterator[ShardApis]:
    """The APIs of the store behind the pages, with Redis's own clock."""
    apis = ShardApis(redis_url, clock=RedisClock())
    yield apis
    apis.close()


@pytest.fixture
def few_tasks() -> Iterator[None]:
    """Hide the tasks that other tests have registered, whose names are on the pages."""
    with registry.override({task.name: task for task in (noop, catch_all)}):
        yield


@pytest.fixture
def jobs(stock: ShardApis) -> dict[str, str]:
    """A job in each state, by the list that shows it, and one in two lists that stays there."""
    add(stock, 2)
    add_dead(stock, 2)
    ready, running = add(stock, delay=None, queue="mail"), add(stock, delay=None)
    claim(stock, running)
    return {"scheduled": add(stock, 1), "ready": ready, "running": running, "failed": add_dead(stock, 1)}
