"""Pages over three masters: each step is one write to each of them, whatever number of shards they have."""

from collections import Counter
from typing import Any

import pytest
from django.test import Client
from redis.connection import AbstractConnection

from django_delayq.admin.page import admin_store
from django_delayq.job.job import State
from tests.admin.conftest import page
from tests.admin.content.test_round_trips import VISITS
from tests.admin.page_content import text
from tests.servers.lost_master import SHARDS, ThreeMasters


def writes(browser: Client, address: str, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how many packets a page sends to each port, on open connections with known queues and scripts."""
    assert browser.get(address).status_code == 200
    sent: Counter[int] = Counter()
    send = AbstractConnection.send_packed_command

    def noted(self: Any, command: Any, check_health: bool = True) -> None:
        sent[self.port] += 1
        send(self, command, check_health)

    with monkeypatch.context() as patched:
        patched.setattr(AbstractConnection, "send_packed_command", noted)
        assert browser.get(address).status_code == 200
    return sent


@pytest.mark.parametrize("name", VISITS)
def test_a_page_sends_at_most_three_packets_to_each_server(
    name: str, masters: ThreeMasters, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    masters.add_jobs(2)
    address, query = VISITS[name]
    sent = writes(browser, page(address, **query), monkeypatch)
    assert len(sent) == 3 and max(sent.values()) <= 3


def test_a_limited_pool_is_enough(masters: ThreeMasters, browser: Client, delayq_settings: Any) -> None:
    masters.add_jobs(2)
    host, port = masters.cluster.nodes[0].address.split(":")
    delayq_settings.DELAYQ |= {"REDIS": {"cluster": [(host, int(port))], "max_connections": 1}}
    assert "Scheduled 12 " in text(browser.get(page("overview")))


def test_a_shard_that_moved_is_read_where_it_is(masters: ThreeMasters, browser: Client) -> None:
    made = masters.add_jobs(2)
    assert "Scheduled 12 " in text(browser.get(page("overview")))
    with masters.moved(0):
        assert "Scheduled 12 " in text(browser.get(page("overview")))
        store = admin_store()
        found = store.reads().read(lambda shard: store.lookup(shard).read_page(State.SCHEDULED, queues=["default"]))
        assert {shard: [row.id for row in rows.rows] for shard, rows in found.items()} == made
    assert list(made) == list(range(SHARDS))


def test_a_script_that_a_server_does_not_know_is_sent(masters: ThreeMasters, browser: Client) -> None:
    masters.add_jobs(2)
    assert "Scheduled 12 " in text(browser.get(page("overview")))
    masters.cluster.nodes[1].ask("SCRIPT", "FLUSH")
    assert "Scheduled 12 " in text(browser.get(page("overview")))
