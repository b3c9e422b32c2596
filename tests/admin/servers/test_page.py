"""The page of servers and shards, of one server."""

import re
from typing import Any

from django.test import Client

from django_delayq.admin.page import admin_store
from django_delayq.job.ids import to_text
from tests.admin.conftest import RedisClock, page
from tests.admin.page_content import link, rows, text
from tests.admin.reports import tell
from tests.shard_apis import HOUR, ShardApis
from tests.subprocesses import Processes


def test_one_server_is_one_row_and_no_alert(browser: Client, stock: ShardApis) -> None:
    stock.add(delay=HOUR)
    stock.add()
    stock.add_dead()
    shown = rows(browser, "servers")
    [(server, state, *counts, memory)] = shown.values()
    assert list(shown) == ["0"]
    assert server.startswith(stock.config.redis.display_url)
    assert re.search(r" (Redis|Valkey) \d+\.\d+", server)
    assert (state, counts) == ("active", ["1", "1", "0", "1", "0"])
    assert re.fullmatch(r"\d+\.\d\sMB noeviction", memory)
    assert "Left of an older number" not in text(browser.get(page("servers")))
    assert "Problem:" not in text(browser.get(page("servers")))


def test_one_server_has_no_tab_and_the_overview_leads_to_it(browser: Client, stock: ShardApis) -> None:
    overview = browser.get(page("overview"))
    assert link(overview, "Servers and shards") == page("servers")
    assert page("servers") not in browser.get(page("queues")).content.decode()
    assert "Shard" not in text(browser.get(page("job_detail", to_text(stock.add(delay=HOUR), 0))))


def test_a_user_without_info_sees_the_rest(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    stock.client.execute_command("ACL", "SETUSER", "looks", "on", "nopass", "~*", "&*", "+@all", "-info", "-config")
    try:
        delayq_settings.DELAYQ = {
            "REDIS": {"url": delayq_settings.DELAYQ["REDIS"], "username": "looks", "password": "x"}
        }
        [(_server, state, *_counts, memory)] = rows(browser, "servers").values()
    finally:
        stock.client.execute_command("ACL", "DELUSER", "looks")
    assert (state, memory) == ("active", "INFO is not permitted")


def test_several_shards_have_a_tab_and_a_job_has_its_shard(
    browser: Client, stock: ShardApis, redis_url: str, settings: Any
) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 2}
    second = ShardApis(redis_url, clock=RedisClock(), shard=1, SHARDS=2)
    id = second.add(delay=HOUR)
    assert link(browser.get(page("queues")), "Servers") == page("servers")
    shown = rows(browser, "servers")
    assert [each[2] for each in shown.values()] == ["0", "1"]
    detail = browser.get(page("job_detail", to_text(id, 1)))
    assert "Shard 1 " in text(detail)
    second.close()


def test_processes_that_do_not_serve_all_shards_are_named(
    browser: Client, stock: ShardApis, redis_url: str, settings: Any
) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 2}
    second = ShardApis(redis_url, clock=RedisClock(), shard=1, SHARDS=2)
    for apis in (stock, second):
        tell(apis)
    assert "do not serve all shards" not in text(browser.get(page("servers")))
    tell(stock, code=b"V" * 8, name="web2:<b>")
    assert "Processes that do not serve all shards web2:&lt;b&gt; (1)" in text(browser.get(page("servers")))
    second.close()


def test_running_processes_serve_all_shards(browser: Client, processes: Processes, delayq_settings: Any) -> None:
    processes.configure(SHARDS=3)
    processes.start("run_dispatcher")
    processes.start("run_worker")

    def reported() -> bool:
        kinds = [(each.shard, each.kind) for each in admin_store().snapshot().processes if each.name]
        return len(set(kinds)) == 6

    processes.until(reported, what="the reports of both to three shards")
    assert "do not serve all shards" not in text(browser.get(page("servers")))
