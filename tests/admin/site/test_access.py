"""Who gets what, on every address: each kind of user, on two sites, with each method."""

from typing import Any

import pytest
from django.contrib.admin.sites import site as default_site
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.admin.conftest import SITES, page
from tests.admin.jobs import NOOP
from tests.admin.page_content import PAGES
from tests.admin.schedule_records import add_schedule
from tests.shard_apis import ShardApis

VIEW, MANAGE, PAYLOAD = "view_delayq", "manage_delayq", "view_delayq_payload"
#: Kind -> whether it is staff, and its permissions; None: nobody is logged in.
KINDS: dict[str, tuple[bool, tuple[str, ...]] | None] = {
    "anonymous": None,
    "no staff": (False, (VIEW, MANAGE, PAYLOAD)),
    "staff": (True, ()),
    "viewer": (True, (VIEW,)),
    "revealer": (True, (VIEW, PAYLOAD)),
    "manager without view": (True, (MANAGE, PAYLOAD)),
    "manager": (True, (VIEW, MANAGE)),
    "superuser": (True, ()),
}
METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
#: Addresses that take a POST: to reveal hidden values, and to act.
REVEALING = ("job_detail", "recurring_schedule", "export")


def log_in(kind: str) -> Client:
    """Return a client of a kind of user."""
    browser, given = Client(), KINDS[kind]
    if given is not None:
        is_staff, names = given
        user = User.objects.create(username=kind, is_staff=is_staff, is_superuser=kind == "superuser")
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        browser.force_login(user)
    return browser


def addresses(site: str, stock: ShardApis) -> dict[str, str]:
    """Return an address of each page, by its name, with jobs to show."""
    stock.add(queue="mail", delay=60_000_000)
    job_id = f"{stock.add_dead().hex()}-0"
    given: dict[str, tuple[Any, ...]] = {
        "queue_detail": ("mail",),
        "queue_tenants": ("mail",),
        "job_detail": (job_id,),
        "recurring_schedule": (add_schedule(stock),),
        "task_detail": (NOOP,),
        "live": ("failed",),
        "export": ("failed",),
    }
    prefix = "django_delayq_"
    (model_admin,) = [each for model, each in default_site._registry.items() if model.__name__ == "DelayQueue"]
    names = [str(pattern.name).removeprefix(prefix) for pattern in model_admin.get_urls()]
    # A new address is tested without a change here, unless it needs a name or an id.
    pages = {
        name: page(name.replace("queue_changelist", "overview"), *given.get(name, ()), site=site) for name in names
    }
    return pages | {f"live {name}": page("live", name, site=site) for name in PAGES}


def expected(kind: str, name: str, method: str) -> set[int]:
    """Return the status codes that are right."""
    if kind in ("anonymous", "no staff"):
        return {302}
    if kind in ("staff", "manager without view"):
        return {403}
    reads = {"search": {302}}.get(name, {200})
    if name == "action":
        # Without a choice an action returns to the list.
        return ({302} if kind in ("manager", "superuser") else {403}) if method == "post" else {405}
    if method in ("get", "head"):
        return reads
    if method == "post" and name in REVEALING:
        return {200} if kind in ("revealer", "superuser") else {403}
    return {405}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_address_with_every_method(kind: str, site: str, stock: ShardApis) -> None:
    browser, wrong = log_in(kind), []
    for name, address in addresses(site, stock).items():
        for method in METHODS:
            answer = getattr(browser, method)(address)
            if answer.status_code not in expected(kind, name, method):
                wrong.append((name, method, answer.status_code))
            if kind in ("anonymous", "no staff"):
                assert answer["Location"].split("?")[0] == f"/{site}/login/", address
    assert wrong == []
    assert not stock.store.dashboard(0).snapshot().queues["mail"].paused
