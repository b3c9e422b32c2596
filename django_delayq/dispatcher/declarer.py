"""Declarer: stores the recurring schedules that the code of this process declares, for one dispatcher.

Processes with different code may run at the same time, as during a deploy. The process that started last declares. If
it is gone, another one declares its own: so after a deploy, and after a rollback, the schedules are those of the code
that runs.
"""

from collections.abc import Callable
from time import monotonic, time_ns

from django_delayq.exceptions import OtherLayout, StoreError
from django_delayq.logs import logger
from django_delayq.store.records import DeclaredBy
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store
from django_delayq.task.recurring.declarations import Declarations, make_declarations

#: Seconds after which it looks again who declared, and after which it does if Redis refused.
_EVERY, _AFTER_ERROR = 60.0, 10.0


class Declarer:
    """Declares for one shard. `process` is the code of its dispatcher."""

    def __init__(self, store: Store, shard: Shard, *, process: bytes, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._store = store
        self._shard = shard
        self._declared = ScheduleDeclarations(shard)
        self._process = process
        self._started_us = time_ns() // 1_000
        #: Made at the first step, when all tasks are imported.
        self._declarations: Declarations | None = None
        self._layout = 0
        self._look_at = 0.0

    def step(self) -> None:
        """Declare once a minute, if it is for this process to declare. One round trip, four if it declares."""
        if (now := self._clock()) < self._look_at:
            return
        try:
            is_done = self._declare()
        except OtherLayout as error:
            self._shard.follow(error)
            self._look_at = 0.0
        except StoreError as error:
            # Jobs are promoted nevertheless: a full Redis, for one, accepts no schedules, but moves jobs.
            logger.warning("The declared recurring schedules could not be stored; trying again: %s", error)
            self._look_at = now + _AFTER_ERROR
        else:
            self._look_at = now + _EVERY if is_done else 0.0

    def _declare(self) -> bool:
        """Return whether there is nothing more to do: False if another process declared meanwhile."""
        layout = self._shard.layout
        if layout.moves_schedules:
            # One that is still in its old shard would be stored a second time.
            return True
        if self._declarations is None or self._layout != layout.number:
            # Another shard may declare some of them by now.
            self._layout = layout.number
            self._declarations = make_declarations(self._store, self._shard.index)
            for text, error in self._declarations.faults:
                logger.error(text, exc_info=error)
        declared, before = self._declarations, self._declared.declared_by()
        mine = DeclaredBy(self._process, self._started_us, declared.digest)
        if before is None and not declared.definitions or before is not None and not self._replaces(before, mine):
            return True
        if not self._declared.declare_and_cancel(declared.definitions, by=mine, kept=declared.kept, after=before):
            return False
        logger.info("Declared %d recurring schedules", len(declared.definitions))
        return True

    def _replaces(self, before: DeclaredBy, mine: DeclaredBy) -> bool:
        """Return whether this process declares in place of the one that did."""
        if before.process == mine.process:
            return False
        if before.digest != mine.digest and before.started_us < mine.started_us:
            return True
        # Also with equal declarations: otherwise an older process would take the place of one that is gone.
        return not self._declared.is_dispatcher_alive(before.process)
