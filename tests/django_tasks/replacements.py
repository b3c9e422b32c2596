"""Doubles: our backend in the places where Django's own tests have the dummy and the immediate one."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django_delayq import get_store
from django_delayq.backend.backend import DelayQBackend
from django_delayq.job.ids import to_text
from tests.django_tasks.worker import OneWorker


class Storing(DelayQBackend):
    """Stores and runs nothing, as the dummy backend; what is stored can be listed and dropped."""

    @property
    def results(self) -> list[Any]:
        """The results of all that waits."""
        shard = get_store(self.alias).shards[0]
        ids = sorted(shard.client.hkeys(shard.keys("jobs")))
        return [self.get_result(to_text(raw_id, 0)) for raw_id in ids]

    def clear(self) -> None:
        """Drop everything."""
        client = get_store(self.alias).shards[0].client
        for key in client.keys(f"{get_store(self.alias).config.prefix}:*"):
            client.delete(key)


class AtOnce(DelayQBackend):
    """Stores, has a worker run what is stored, and looks the result up, as the immediate backend seems to do."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Return a result that is finished."""
        result = super().enqueue(task, args, kwargs)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(OneWorker(self.alias).drain).result()
        result.refresh()
        return result
