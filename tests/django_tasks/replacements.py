"""Replacements: our backend in place of the dummy and the immediate backend of Django's own tests."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django_delayq import get_store
from django_delayq.backend.backend import DelayQBackend
from django_delayq.job.ids import to_text
from tests.django_tasks.worker import OneWorker


class Storing(DelayQBackend):
    """Store jobs and run none, as the dummy backend; stored jobs can be listed and deleted."""

    @property
    def results(self) -> list[Any]:
        """The results of all waiting jobs."""
        shard = get_store(self.alias).shards[0]
        ids = sorted(shard.client.hkeys(shard.keys("jobs")))
        return [self.get_result(to_text(raw_id, 0)) for raw_id in ids]

    def clear(self) -> None:
        """Delete everything."""
        client = get_store(self.alias).shards[0].client
        for key in client.keys(f"{get_store(self.alias).config.prefix}:*"):
            client.delete(key)


class AtOnce(DelayQBackend):
    """Store a job, run it by a worker, and look its result up: to the caller, this looks like the immediate backend."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Return a finished result."""
        result = super().enqueue(task, args, kwargs)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(OneWorker(self.alias).drain).result()
        result.refresh()
        return result
