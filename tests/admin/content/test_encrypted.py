"""Encrypted jobs: the pages show them as they show plain ones; without the key they name what is missing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from redis import Redis

from django_delayq.job.outcome import Action
from tests.admin.conftest import RedisClock, page
from tests.admin.forms import form_to
from tests.admin.jobs import add, add_dead, claim
from tests.admin.page_content import text
from tests.inspection import everything
from tests.shard_apis import ShardApis

ENCRYPT = {"ENCRYPT": True}


@pytest.fixture
def encrypted(redis_url: str, delayq_settings: Any) -> Iterator[ShardApis]:
    """The APIs of the store behind the pages; both encrypt."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, **ENCRYPT}
    apis = ShardApis(redis_url, clock=RedisClock(), **ENCRYPT)
    yield apis
    apis.close()


def test_arguments_and_errors_are_shown_to_whom_they_may_be(
    visitor: Callable[..., Client], encrypted: ShardApis, client: Redis
) -> None:
    mine = add(encrypted, "seen", token="hidden-value", delay=None)
    worker, claimed = claim(encrypted, mine)
    worker.settle(claimed, Action.DEAD_LETTER, error="Traceback:\nValueError: it-broke")
    viewer, reader = visitor("viewer"), visitor("viewer", "view_delayq_payload")
    for browser in (viewer, reader):
        shown = text(browser.get(page("job_detail", mine)))
        assert "seen" in shown and "it-broke" in shown and "hidden-value" not in shown
    revealed = form_to(reader.get(page("job_detail", mine)), f"/{mine}/").post(reader)
    assert "hidden-value" in revealed.content.decode()
    assert "hidden-value" not in repr(list(LogEntry.objects.values()))
    assert not any(secret in everything(client) for secret in (b"seen", b"hidden-value", b"it-broke"))


def test_lists_and_their_search_read_encrypted_jobs(browser: Client, encrypted: ShardApis) -> None:
    add(encrypted, "order-17")
    add(encrypted, "order-18")
    shown = text(browser.get(page("scheduled", q="order-17")))
    assert "order-17" in shown and "order-18" not in shown


def test_without_the_key_a_page_names_what_is_missing(
    browser: Client, encrypted: ShardApis, delayq_settings: Any
) -> None:
    waiting, dead = add(encrypted, "seen"), add_dead(encrypted, "seen")
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ENCRYPTION_KEYS": ["another key" * 3]}
    for mine in (waiting, dead):
        shown = text(browser.get(page("job_detail", mine)))
        assert "tests.sample_app.tasks.noop" in shown and "seen" not in shown
        assert "encrypted with a key that this process does not have" in shown
    for name in ("scheduled", "failed"):
        assert "noop" in text(browser.get(page(name)))
