"""Masters of a cluster go down and come back while people look at pages."""

import os
import signal

from django.test import Client
from django.urls import reverse

from django_delayq.admin.page import admin_store
from django_delayq.exceptions import StoreUnavailable
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.page_content import text
from tests.admin.steps import result
from tests.servers.lost_master import ThreeMasters
from tests.subprocesses import until


def test_pages_are_incomplete_as_long_as_a_server_is_away(masters: ThreeMasters, browser: Client) -> None:
    masters.add_jobs()
    pause = form_to(browser.get(page("queues")), "/action/", button="pause")
    reads = admin_store().reads(partial=True)
    assert admin_store().snapshot(reads=reads).total.scheduled == 60
    others = admin_store().reads(partial=True)
    assert "delayq_queue_enqueued_total" in browser.get(reverse("delayq:metrics")).content.decode()
    masters.lose(2)
    # A change of a page failed there.
    others.leave_out(2, StoreUnavailable("away"))
    assert set(range(6)) - set(others.answering) == set(masters.lost_shards)
    # A later read of the same page.
    found = reads.read(lambda shard: admin_store().dashboard(shard).read_snapshot())
    assert list(found) == reads.answering == [shard for shard in range(6) if shard not in masters.lost_shards]
    [missing] = reads.missing
    assert (missing.server, list(missing.shards)) == (masters.lost_address, masters.lost_shards)
    assert "Scheduled 40+" in text(browser.get(page("overview")))
    # A counter that went back would look like a restart.
    figures = browser.get(reverse("delayq:metrics")).content.decode()
    assert "delayq_servers_missing 1.0" in figures and "_total" not in figures
    assert "do this again" in result(browser, pause.post(browser, action="pause"))
    masters.restore()
    masters.add_jobs()

    def pauses() -> list[bool]:
        found = admin_store().snapshots().values()
        return [bool(each.queues["default"].paused) for each in found if "default" in each.queues]

    # The others were away.
    admin_store().operations(0).workers.pause("default", by="ann")
    assert any(pauses()) and not all(pauses())
    assert "Paused queue default." in result(browser, pause.post(browser, action="pause"))
    assert all(pauses())
    # It is asked once in two seconds.
    until(lambda: "Scheduled 60 " in text(browser.get(page("overview"))), what="the whole")


def test_a_page_is_unavailable_if_no_server_answers(masters: ThreeMasters, browser: Client) -> None:
    masters.add_jobs()
    assert browser.get(page("overview")).status_code == 200
    nodes = masters.cluster.nodes
    try:
        for node in nodes:
            node.server.kill()
        answer = browser.get(page("overview"))
    finally:
        for node in nodes:
            node.server.start()
        masters.cluster.wait_until_ready()
    assert answer.status_code == 503
    assert "Redis does not answer, so nothing can be shown or changed here." in text(answer)


def test_a_silent_server_is_left_out(masters: ThreeMasters, browser: Client) -> None:
    masters.add_jobs()
    assert "Scheduled 60 " in text(browser.get(page("overview")))
    silent = masters.cluster.nodes[2].server
    os.kill(silent.pid or 0, signal.SIGSTOP)
    try:
        assert f"127.0.0.1:{silent.port} does not answer" in text(browser.get(page("overview")))
        # From now on nobody waits for it as long as a call may take.
        [node] = [each for each in admin_store().topology.nodes() if each.connections.label.endswith(f":{silent.port}")]
        assert node.is_down
    finally:
        os.kill(silent.pid or 0, signal.SIGCONT)
    until(lambda: "Scheduled 60 " in text(browser.get(page("overview"))), what="the whole")
