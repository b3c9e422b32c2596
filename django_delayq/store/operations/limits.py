"""Limits: store the rules of limits, take and give back slots, and pause tasks."""

from collections.abc import Iterable
from enum import StrEnum

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.job.job import LimitUse
from django_delayq.store.client.script import Script
from django_delayq.store.digests import limit_digest, limit_name_digest, paused_task_digest
from django_delayq.store.nodes.resp import Part
from django_delayq.store.operations.worker_control import short_name
from django_delayq.store.shard import Shard

_SET_LIMITS = Script("set_limits")
_TAKE_SLOT, _GIVE_BACK_SLOT, _BACK_OFF = Script("take_slot"), Script("give_back_slot"), Script("back_off")
_PAUSE_TASK, _RESUME_TASK = Script("pause_task"), Script("resume_task")


class SlotReply(StrEnum):
    """What became of a request for a slot."""

    TAKEN = "TAKEN"
    #: The lease has a slot of this limit already.
    HELD = "HELD"
    #: The lease has ended.
    LOST = "LOST"
    CLOSED = "CLOSED"
    #: The limit belongs to another shard, and nothing of its value is left in this one.
    GO_ON = "GO_ON"


class LimitOperations:
    """API of one shard for limits and paused tasks. Each call is atomic, one round trip, and O(log n)."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def set_limits(self, rules: Iterable[tuple[str, LimitRule]]) -> bool:
        """Store these rules in place of all others. Returns whether they differ from those before. O(n)."""
        args: list[Part] = [part for name, rule in rules for part in (limit_name_digest(name), rule.pack())]
        return bool(self._shard.run(_SET_LIMITS, args))

    def store_settings(self) -> None:
        """Store the rules of LIMITS if there are any."""
        if rules := self._shard.config.tasks.limits:
            self.set_limits(rules.items())

    def take_slot(
        self,
        limit: LimitUse,
        *,
        lease: bytes,
        cost: int = 1,
        length_us: int | None = None,
        left: bytes = b"",
        layout: int = 0,
    ) -> tuple[SlotReply, int | None]:
        """Take a slot of a limit for a running job, until it ends; for `length_us` if the lease is no job's.

        `left` and `layout` are those of `Enqueue.prepare()`.

        Returns what became of it; if the limit is closed, also the µs until it may be open; None: a job has to end.
        """
        word, *wait = self._shard.run(
            _TAKE_SLOT, [lease, limit_digest(*limit), cost, length_us or "", layout or "", left]
        )
        return SlotReply(word.decode()), wait[0] if wait and wait[0] >= 0 else None

    def give_back_slot(self, limit: LimitUse, *, lease: bytes) -> bool:
        """Give back a slot that `take_slot()` took. Returns False if the lease has none."""
        return bool(self._shard.run(_GIVE_BACK_SLOT, [lease, limit_digest(*limit)]))

    def back_off(self, limit: LimitUse, length_us: int, *, left: bytes = b"", layout: int = 0) -> bool:
        """Keep all jobs under a limit from beginning for some time, at most a day. The longest of several counts.

        `left` and `layout` are those of `Enqueue.prepare()`. Returns False if the limit belongs to another shard, and
        nothing of its value is left in this one.
        """
        reply = self._shard.run(_BACK_OFF, [limit_digest(*limit), length_us, layout or "", left])
        return bool(reply != b"GO_ON")

    def pause_task(self, *names: str, by: str) -> bool:
        """Keep the jobs of a task from beginning until it is resumed; `names` are its name and aliases.

        A round trip a name. Returns False if all of them were paused already.
        """
        return sum([self._pause(name, by) for name in names]) > 0

    def resume_task(self, *names: str) -> bool:
        """Let the jobs of a task begin again. A round trip a name. Returns False if none of them was paused."""
        return sum([int(self._shard.run(_RESUME_TASK, [paused_task_digest(name)])) for name in names]) > 0

    def _pause(self, name: str, by: str) -> int:
        stored = name.encode("utf-8", "surrogatepass")
        return int(self._shard.run(_PAUSE_TASK, [paused_task_digest(name), short_name(by), stored]))
