"""Lists are small: a page of 50 rows is at most 40 KiB of HTML."""

import pytest
from django.test import Client

from tests.admin.conftest import page
from tests.admin.jobs import HOUR, add, add_dead
from tests.admin.page_content import ids
from tests.shard_apis import ShardApis

pytestmark = pytest.mark.usefixtures("few_tasks")

ROWS = 50


def fill(stock: ShardApis, name: str) -> None:
    """Give a list its rows."""
    if name == "failed":
        for number in range(ROWS):
            add_dead(stock, number, queue="reports")
        return
    for number in range(ROWS):
        add(stock, number, "short", lang="de", queue="reports", delay=HOUR if name == "scheduled" else None)
    if name == "running":
        stock.worker().take(ROWS, "reports", description="web1:4411")


@pytest.mark.parametrize("name", ["scheduled", "queue_detail", "running", "failed"])
def test_a_page_of_fifty_rows_is_small(name: str, browser: Client, stock: ShardApis) -> None:
    fill(stock, name)
    answer = browser.get(page(name, *(["reports"] if name == "queue_detail" else [])))
    assert len(ids(answer)) == ROWS
    rows = answer.content.partition(b"<tbody>")[2].partition(b"</tbody>")[0]
    assert len(rows) / ROWS <= 530
    assert len(answer.content) <= 40 * 1024
