"""Who may do what, on which site."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core.checks import run_checks
from django.core.management import call_command
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from tests.admin.conftest import KINDS, SITES, page
from tests.admin.forms import form_to
from tests.admin.jobs import add_dead
from tests.admin.page_content import PAGES
from tests.admin.schedule_records import add_schedule
from tests.shard_apis import ShardApis

CODES = {"view_delayq", "manage_delayq", "view_delayq_payload"}
Visitor = Callable[..., Client]


def rows() -> set[str]:
    """Return the codenames of our permissions."""
    return set(Permission.objects.filter(codename__contains="delayq").values_list("codename", flat=True))


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("kind", KINDS)
def test_walk_to_the_actions(kind: str, site: str, visitor: Visitor, stock: ShardApis) -> None:
    stock.add(queue="mail")
    browser, address = visitor(kind), page("action", site=site)
    looked = browser.get(address).status_code
    acted = browser.post(address, {"action": "pause", "queue": "mail"})
    if kind == "anonymous":
        assert (looked, acted.status_code, acted["Location"].split("?")[0]) == (302, 302, f"/{site}/login/")
    elif kind == "staff":
        assert (looked, acted.status_code) == (403, 403)
    else:
        # People who may view get 405 for a GET.
        assert looked == 405
        assert (acted.status_code == 403) == (kind == "viewer")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("kind", [*KINDS, "revealer"])
def test_walk_to_hidden_values(kind: str, site: str, visitor: Visitor, stock: ShardApis) -> None:
    browser = visitor("viewer", "view_delayq_payload") if kind == "revealer" else visitor(kind)
    job_id = f"{stock.add_dead().hex()}-0"
    schedule = page("recurring_schedule", add_schedule(stock), site=site)
    for address in (page("job_detail", job_id, site=site), page("export", "failed", site=site), schedule):
        answer = browser.post(address)
        if kind == "anonymous":
            assert (answer.status_code, answer["Location"].split("?")[0]) == (302, f"/{site}/login/")
        else:
            assert answer.status_code == (200 if kind in ("superuser", "revealer") else 403), address


@pytest.mark.parametrize("kind", KINDS)
def test_index_shows_the_entry_to_people_who_may_view(kind: str, visitor: Visitor) -> None:
    answer = visitor(kind).get(reverse("admin:index"))
    assert ("/admin/django_delayq/" in answer.content.decode()) == (kind not in ("staff", "anonymous"))


def test_action_needs_the_token_of_its_form(account: Any) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(account("superuser"))
    assert browser.post(page("action"), {"action": "pause", "queue": "mail"}).status_code == 403


def test_read_only_mode_has_no_buttons_and_refuses_actions(browser: Client, stock: ShardApis, settings: Any) -> None:
    stock.add(queue="mail")
    assert form_to(browser.get(page("queues")), "/action/", button="pause").offers("pause")
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": True}}
    for name in PAGES:
        assert page("action") not in browser.get(page(name)).content.decode()
    assert browser.post(page("action"), {"action": "pause", "queue": "mail"}).status_code == 403
    assert not stock.store.dashboard(0).snapshot().queues["mail"].paused


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("kind", "more"), [("superuser", ()), ("viewer", ("view_delayq_payload",)), ("viewer", ()), ("manager", ())]
)
def test_hidden_values_need_the_permission_and_stay_hidden_in_read_only_mode(
    read_only: bool, kind: str, more: tuple[str, ...], visitor: Visitor, stock: ShardApis, settings: Any
) -> None:
    mine = add_dead(stock, token="s3cr3t")
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    browser, reveals = visitor(kind, *more), not read_only and (kind == "superuser" or bool(more))
    shown, listed = browser.get(page("job_detail", mine)), browser.get(page("failed"))
    exported = b"".join(browser.get(page("export", "failed")).streaming_content)
    assert b"s3cr3t" not in shown.content + listed.content + exported
    assert mine.encode() in exported
    assert (b">Reveal<" in shown.content) is reveals
    assert (b"Export with hidden values" in listed.content) is reveals
    assert (b"read-only" in listed.content) is read_only
    for address in (page("job_detail", mine), page("export", "failed")):
        answer = browser.post(address)
        assert answer.status_code == (200 if reveals else 403)
        assert (b"s3cr3t" in b"".join(answer)) is reveals
    assert LogEntry.objects.count() == (2 if reveals else 0)


def test_viewer_sees_no_buttons(visitor: Visitor, stock: ShardApis) -> None:
    stock.add(queue="mail")
    for name in PAGES:
        assert page("action") not in visitor("viewer").get(page(name)).content.decode()


# Rows of permissions


def test_rows_are_created_once_on_the_admins_own_log() -> None:
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)
    found = Permission.objects.filter(codename__contains="delayq").select_related("content_type")
    assert sorted(row.codename for row in found) == sorted(CODES)
    assert {row.content_type.natural_key() for row in found} == {("admin", "logentry")}
    assert all(row.name.startswith("Can ") for row in found)


def test_rows_and_grants_outlive_the_removal_of_stale_content_types(account: Any) -> None:
    call_command("remove_stale_contenttypes", interactive=False, include_stale_apps=True, verbosity=0)
    assert rows() == CODES
    assert account("viewer").has_perm("admin.view_delayq")


def test_rows_are_not_created_if_the_settings_say_so(settings: Any) -> None:
    Permission.objects.filter(codename__in=CODES).delete()
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"CREATE_PERMISSIONS": False}}
    call_command("migrate", verbosity=0)
    assert rows() == set()
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"VIEW_PERMISSION": "auth.view_user"}}
    call_command("migrate", verbosity=0)
    assert rows() == CODES - {"view_delayq"}


# Settings


def test_the_settings_may_name_another_permission(visitor: Visitor, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"VIEW_PERMISSION": "auth.view_user"}}
    assert visitor("viewer").get(page("overview")).status_code == 403
    assert visitor("staff", "view_user").get(page("overview")).status_code == 200


def asked_with_the_word(request: HttpRequest) -> bool:
    """Allow requests with the word."""
    return request.headers.get("X-Word") == "please"


def test_a_function_also_decides_about_superusers(visitor: Visitor, settings: Any) -> None:
    settings.DELAYQ = {
        **settings.DELAYQ,
        "ADMIN": {"VIEW_PERMISSION": "tests.admin.site.test_permissions.asked_with_the_word"},
    }
    assert run_checks() == []
    for kind in ("superuser", "staff"):
        assert visitor(kind).get(page("overview")).status_code == 403
        assert visitor(kind).get(page("overview"), headers={"X-Word": "please"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["tests.admin.nowhere.f", "tests.admin.site.test_permissions.g", "tests.admin.conftest.KINDS"]
)
def test_function_that_cannot_be_called_is_reported_by_the_checks(path: str, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"MANAGE_PERMISSION": path}}
    told = {(problem.id, path in problem.msg) for problem in run_checks()}
    assert told == {("delayq.E007", True)}


@pytest.mark.parametrize(
    ("admin", "words"),
    [
        ({"READONLY": True}, "unknown key 'READONLY' (did you mean 'READ_ONLY'?)"),
        ({"READ_ONLY": 1}, "DELAYQ['ADMIN']['READ_ONLY'] must be True or False"),
        ({"VIEW_PERMISSION": "view"}, "must be 'app_label.codename' or a dotted path"),
        ({"REDACT": "("}, "must be a regular expression (missing ), unterminated subpattern at position 0), got '('"),
        ({"REDACT": ""}, "must be a regular expression"),
        ([], "must be a dict of VIEW_PERMISSION"),
    ],
)
def test_invalid_settings_are_reported(admin: Any, words: str, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": admin}
    (problem,) = run_checks()
    assert words in problem.msg
