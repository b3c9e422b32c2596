"""Old ids: after the number of shards changed, a job that went to another shard is found by the id that people know."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import get_job
from django_delayq.management import resharding
from django_delayq.store.store import get_store
from tests.integration.growth.command import shards
from tests.sample_app.tasks import noop


@pytest.fixture
def old_id(delayq_settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of a waiting job, with a shard in which it is not."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2, "ON_COMMIT": False}
    monkeypatch.setattr(resharding, "LEARN_EVERY", 0.0)
    handle = noop.using(delay=3_600, tenant="acme").enqueue()
    shards("--grow", "3")
    raw_id, shard = handle.id.split("-")
    yield f"{raw_id}-{(int(shard) + 1) % 3}"
    get_store().disconnect_idle()


def run(*args: str) -> str:
    """Run a command; return what it prints."""
    out = StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def test_commands_find_the_job(old_id: str) -> None:
    raw_id = old_id.split("-")[0]
    assert raw_id in run("delayq_jobs", old_id)
    assert "Would run" in run("delayq_run", old_id, "--dry-run")
    assert "done" in run("delayq_run", old_id, "--yes")
    assert get_job(old_id) is None


def test_a_job_that_is_in_no_shard_is_gone(old_id: str) -> None:
    with pytest.raises(CommandError, match="gone"):
        run("delayq_run", f"{'0' * 24}-{old_id[-1]}", "--dry-run")
