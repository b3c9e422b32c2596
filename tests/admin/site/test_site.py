"""Registration on sites, and which parts of Django the pages need or leave alone."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.core.checks import run_checks
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

import django_delayq
from django_delayq.admin import register
from django_delayq.admin.site import DelayQueue
from tests.admin.conftest import SITES, page
from tests.admin.page_content import PAGES
from tests.shard_apis import ShardApis

PACKAGE = Path(django_delayq.__file__).parent
#: Markup that a strict Content-Security-Policy blocks.
INLINE = re.compile(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", re.IGNORECASE)


@pytest.mark.parametrize("site", SITES)
def test_index_and_sidebar_link_to_the_pages_of_their_own_site(site: str, browser: Client) -> None:
    index = browser.get(reverse("admin:index", current_app=site)).content.decode()
    assert f'href="/{site}/django_delayq/queue/"' in index
    assert "Delayed jobs" in index
    listed = browser.get(reverse("admin:app_list", args=["django_delayq"], current_app=site))
    assert f'href="/{site}/django_delayq/queue/"' in listed.content.decode()


@pytest.mark.parametrize("name", PAGES)
def test_links_stay_on_the_same_site(name: str, browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    stock.add_dead()
    text = browser.get(page(name, site="second")).content.decode()
    assert '"/second/django_delayq/queue/' in text
    assert '"/admin/' not in text


def test_registering_again_changes_nothing() -> None:
    site = AdminSite(name="third")
    register(site)
    first = site.get_model_admin(DelayQueue)
    register(site)
    assert site.get_model_admin(DelayQueue) is first
    assert admin.site.is_registered(DelayQueue)


def test_pages_pass_the_checks() -> None:
    assert run_checks() == []


@pytest.mark.parametrize("name", PAGES)
def test_pages_hold_nothing_that_a_strict_policy_forbids(name: str, browser: Client, stock: ShardApis) -> None:
    stock.add(delay=60_000_000)
    stock.add_dead()
    assert not INLINE.search(browser.get(page(name)).content.decode())


def with_nonce(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Put a nonce on the request, like django-csp."""

    def middleware(request: Any) -> Any:
        request.csp_nonce = 'n0"nce'
        return get_response(request)

    return middleware


def test_style_sheet_and_script_carry_the_nonce(browser: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.admin.site.test_site.with_nonce"]
    text = browser.get(page("overview")).content.decode()
    for name in ("tokens", "delayq", "tables"):
        assert f'{name}.css" nonce="n0&quot;nce">' in text
    assert 'delayq.js" defer nonce="n0&quot;nce">' in text


def test_without_a_policy_there_is_no_nonce(browser: Client) -> None:
    assert "nonce" not in browser.get(page("overview")).content.decode()


def test_script_is_small() -> None:
    static = PACKAGE / "static" / "django_delayq"
    sizes = {path.name: len(path.read_bytes()) for path in static.iterdir()}
    assert set(sizes) == {"delayq.css", "delayq.js", "rows.js", "search.js", "tables.css", "tokens.css"}
    assert sizes["delayq.js"] < 10_000
    assert sizes["search.js"] < 3_000
    assert sizes["rows.js"] < 3_000


def test_anonymous_users_get_the_login_of_the_site(visitor: Any, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    settings.LOGIN_URL = "/elsewhere/"
    answer = visitor("anonymous").get(page("failed", site="second"))
    assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/second/login/")


@pytest.mark.parametrize("queue", ["mail", "a/b", "..", ".", "~x", "~00", "a b", "'\"<b>&", "\0", "\ud800", "é", " "])
def test_an_address_keeps_any_name_of_a_queue(queue: str, browser: Client, stock: ShardApis) -> None:
    stock.add(queue=queue)
    answer = browser.get(page("queue_detail", queue))
    assert answer.status_code == 200
    assert "<b>" not in answer.content.decode().split('<div id="delayq"')[1]
    assert escape(page("queue_detail", queue)) in browser.get(page("queues")).content.decode()


def test_an_address_of_no_queue_is_a_404(browser: Client) -> None:
    assert browser.get(page("queues") + "~zz/").status_code == 404


@pytest.mark.parametrize("zone", ["utc", "Asia/Kolkata", "local"])
def test_the_chosen_time_zone_is_stored_and_the_filter_kept(zone: str, browser: Client) -> None:
    answer = browser.get(page("scheduled", queue="mail", zone=zone))
    assert (answer.status_code, answer["Location"]) == (302, page("scheduled", queue="mail"))
    text = browser.get(answer["Location"]).content.decode()
    assert f'<a href="?queue=mail&amp;zone={zone}" aria-current="true"' in text


@pytest.mark.parametrize("zone", ["Europe", "../../etc/passwd", "Nowhere/City", "<b>", "x" * 5_000, "", "UTC\0"])
def test_an_invalid_zone_changes_nothing(zone: str, browser: Client) -> None:
    assert browser.get(page("overview", zone=zone)).status_code == 200
    browser.cookies["delayq_zone"] = zone
    text = browser.get(page("overview")).content.decode()
    assert '<a href="?zone=local" aria-current="true"' in text


def test_times_are_those_of_the_zone(browser: Client, stock: ShardApis, settings: Any) -> None:
    # Half an hour off, so that no digit fits by chance.
    settings.TIME_ZONE = "Asia/Kolkata"
    stock.add(due=1_900_000_000_000_000)
    clocks = {"local": "2030-03-17 23:16:40", "utc": "2030-03-17 17:46:40", "Asia/Tokyo": "2030-03-18 02:46:40"}
    for zone, clock in clocks.items():
        browser.get(page("scheduled", zone=zone))
        text = browser.get(page("scheduled")).content.decode()
        assert f'<span class="delayq-clock">{clock}</span>' in text
        assert 'datetime="2030-03-17T17:46:40.000Z" title="2030-03-17 17:46:40.000 UTC"' in text


def test_nothing_but_the_admin_needs_the_admin() -> None:
    outside = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "admin" not in path.parents]
    for path in outside:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith(("django.contrib", "django_delayq.admin"))], path


PROJECT = """
SECRET_KEY = "x"
INSTALLED_APPS = [{apps}]
MIDDLEWARE = []
TEMPLATES = [{{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}}]
DELAYQ = {{"REDIS": "redis://127.0.0.1:1", "ADMIN": {{"AUTOREGISTER": False}}}}
"""
ADMIN_APPS = '"django.contrib.contenttypes", "django.contrib.auth", "django.contrib.admin", '


@pytest.mark.parametrize(
    ("apps", "program"),
    [
        (
            '"django_delayq"',
            "import sys; from django.template import engines; engines['django'].from_string('{% load delayq %}');"
            "assert not [name for name in sys.modules if name.startswith('django.contrib')]",
        ),
        (
            ADMIN_APPS + '"django_delayq"',
            "from django.contrib import admin; from django_delayq.admin.site import DelayQueue;"
            "assert not admin.site.is_registered(DelayQueue)",
        ),
        (
            # This app before theirs, and an admin without autodiscovery.
            '"django_delayq", ' + ADMIN_APPS.replace("contrib.admin", "contrib.admin.apps.SimpleAdminConfig"),
            "import sys; assert 'django_delayq.admin' not in sys.modules;"
            "from django_delayq.admin import register; from django.contrib.admin import AdminSite;"
            "register(AdminSite(name='mine'))",
        ),
    ],
    ids=["templates without the admin", "autoregister off", "no autodiscovery"],
)
def test_other_projects_are_unaffected(apps: str, program: str, tmp_path: Path) -> None:
    (tmp_path / "their_settings.py").write_text(PROJECT.format(apps=apps))
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "their_settings",
        "PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}",
    }
    command = [sys.executable, "-W", "error", "-c", f"import django; django.setup(); {program}"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
