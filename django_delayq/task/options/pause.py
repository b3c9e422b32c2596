"""Pause: keep the jobs of a task from beginning, and let them begin again."""

from django_delayq.store.operations.limits import LimitOperations
from django_delayq.store.store import get_store


class Pausable:
    """What people and code do with all jobs of a task; a base of `Task`."""

    name: str
    aliases: tuple[str, ...]

    def pause(self, *, by: str = "code") -> bool:
        """Keep the jobs of the task from beginning until `resume()`; running ones continue.

        They wait as ready jobs, also those that are stored under an alias of the task. A worker learns of it with its
        next request, so that jobs that it has claimed may still begin. Returns False if the task was paused already.
        `by` is the name that the admin shows.
        """
        if not isinstance(by, str) or not by:
            raise TypeError(f"by must be a text that names who pauses the task, got {by!r:.80}")
        return sum([each.pause_task(self.name, *self.aliases, by=by) for each in _limits()]) > 0

    def resume(self) -> bool:
        """Let the jobs of the task begin again, in their order. Returns False if it was not paused."""
        return sum([each.resume_task(self.name, *self.aliases) for each in _limits()]) > 0

    @property
    def is_paused(self) -> bool:
        """Whether the task is paused. A round trip a shard."""
        store = get_store()
        return any(self.name in store.limits(shard).paused_tasks() for shard in store.shard_numbers())


def _limits() -> list[LimitOperations]:
    store = get_store()
    return [store.operations(shard).limits for shard in store.shard_numbers()]
