"""Jobs of aliases with a store of their own are on no page, and every page says so."""

import re
from typing import Any

import pytest
from django.test import Client

from django_delayq.conf.settings import get_config
from tests.admin.conftest import page
from tests.admin.jobs import add, add_dead
from tests.admin.page_content import PAGES, text
from tests.browser.pages import GONE
from tests.shard_apis import ShardApis

BACKEND = "django_delayq.backend.DelayQBackend"
SECRET = "hunter2"


def aliases(settings: Any, **options: Any) -> None:
    """Set TASKS: `default`, and an alias for each name with its OPTIONS."""
    others = {name: {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": each} for name, each in options.items()}
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": []}, **others}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_names_the_aliases_that_it_does_not_show(
    name: str, browser: Client, stock: ShardApis, settings: Any
) -> None:
    aliases(settings)
    add(stock)
    assert "not on these pages" not in text(browser.get(page(name)))
    aliases(settings, reports={})
    assert "not on these pages: the jobs of alias reports " in text(browser.get(page(name)))
    aliases(settings, reports={}, mail={})
    shown = browser.get(page(name))
    assert "not on these pages: the jobs of aliases reports, mail " in text(shown)
    assert f'href="{page("processes")}#delayq-other-stores"' in shown.content.decode()


def test_the_pages_of_a_job_and_a_queue_name_them_too(browser: Client, stock: ShardApis, settings: Any) -> None:
    aliases(settings, reports={})
    for address in (page("job_detail", add_dead(stock)), page("queue_detail", "default")):
        assert "not on these pages: the jobs of alias reports" in text(browser.get(address))


def test_the_page_of_a_missing_job_names_the_other_stores(browser: Client, stock: ShardApis, settings: Any) -> None:
    aliases(settings)
    assert "Or it belongs to" not in text(browser.get(page("job_detail", GONE)))
    aliases(settings, reports={})
    page_text = text(browser.get(page("job_detail", GONE)))
    assert "Or it belongs to an alias with a store of its own, which these pages do not show: reports." in page_text


def test_processes_shows_the_other_stores_without_connecting_to_them(
    browser: Client, stock: ShardApis, settings: Any
) -> None:
    # Nothing listens there.
    aliases(
        settings,
        near={"PREFIX": "mine"},
        far={"REDIS": f"redis://ann:{SECRET}@10.255.255.1:6399/3"},
        # A callable may return a password.
        called={"REDIS": lambda: f"redis://:{SECRET}@10.255.255.1/0"},
        wrong={"SHARDS": 0},
        same={"PREFIX": "delayq"},
    )
    answer = browser.get(page("processes"))
    page_text = text(answer)
    here = get_config().redis.display_url
    assert "far redis://10.255.255.1:6399/3 " in page_text
    assert "--backend far" in page_text
    assert f"near {here} mine --backend near" in page_text
    assert "called what " in page_text
    assert re.search(r"wrong \S*SHARDS\S* must be", page_text)
    assert "--backend same" not in page_text
    assert SECRET not in answer.content.decode()
    assert f"These pages show the store at {here} with the prefix delayq." in page_text
