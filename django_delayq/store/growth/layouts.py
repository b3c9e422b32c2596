"""Layouts: how a process learns the layout of the shards, follows a later one, and compares it with SHARDS."""

from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from time import monotonic

from django_delayq.exceptions import OtherLayout, ShardsChanged, StoreError, StoreUnavailable
from django_delayq.job.layout import Layout
from django_delayq.logs import logger
from django_delayq.store.client.script import Script
from django_delayq.store.records import DeclaredBy
from django_delayq.store.shard import KnownLayout, Shard

_SET_LAYOUT = Script("set_layout")
#: Seconds after which a process that enqueues or shows jobs looks for a later layout.
LEARN_EVERY = 15.0
#: What a shard may hold that a changed number of shards would separate from its name.
_NOUNS = ("unique_keys", "jobs", "dead_bodies", "schedules")


class Layouts:
    """The layout that one store knows. Thread-safe."""

    def __init__(self, known: KnownLayout, *, setting: int, shard: Callable[[int], Shard]) -> None:
        """`setting` is SHARDS; `shard` returns a shard, which may be one of a former layout."""
        self._known, self._setting, self._shard = known, setting, shard
        known.follow = self.follow
        self._lock = RLock()
        self._warned = False
        #: SHARDS was compared with the stored layout, or follows it.
        self.is_checked = False
        #: This process has followed a layout with other shards: jobs made before may have shards of the former layout.
        self.has_followed = False
        #: time.monotonic() after which a producer looks for a later layout.
        self.learn_at = monotonic() + LEARN_EVERY
        #: The same for `learn()`, which looks at its first call.
        self._learn_again_at = 0.0

    @property
    def layout(self) -> Layout:
        """The layout that this process knows."""
        return self._known.layout

    def read(self, index: int = 0) -> Layout | None:
        """Return the layout that a shard knows, and follow it if it is later. One round trip.

        Shard 0 knows each layout first.
        """
        shard = self._shard(index)
        found = Layout.read(shard.execute("GET", shard.keys("shards")))
        self.learn_at = self._learn_again_at = monotonic() + LEARN_EVERY
        if found is not None:
            self.adopt(found)
        return found

    def read_any(self) -> Layout | None:
        """Return the layout that the first shard knows whose server answers, and follow it if it is later.

        One round trip, and one more for each server that does not answer. Raises `StoreUnavailable` if none does.
        """
        errors = list[StoreUnavailable]()
        # A server that was not reached lately may take a whole timeout again.
        for shard in sorted(range(self.layout.served), key=lambda index: self._shard(index).route.is_down):
            if errors and self._shard(shard).route.is_down:
                continue
            try:
                return self.read(shard)
            except StoreUnavailable as error:
                errors.append(error)
        raise errors[0]

    def learn(self) -> None:
        """Look for a later layout, if nobody has for some seconds. A server that does not answer changes nothing."""
        if monotonic() >= self._learn_again_at:
            self._learn_again_at = monotonic() + LEARN_EVERY
            with suppress(StoreUnavailable):
                self.read_any()

    def adopt(self, layout: Layout) -> None:
        """Use a layout from now on, if it is later than the one that is known."""
        with self._lock:
            before = self._known.layout
            if layout.number <= before.number:
                return
            # Set first: a thread that reads the later layout must not miss that older jobs have other shards.
            self.has_followed = self.has_followed or (layout.chain, layout.served) != (before.chain, before.served)
            self._known.layout = layout

    def store(self, layout: Layout) -> bool:
        """Store a layout in all of its shards, shard 0 first, and follow it. A round trip a shard.

        Returns False if somebody else stored another one meanwhile, which this process follows then. Whoever meets a
        shard that does not know it yet stores it there: so shards that cannot be reached now, other than shard 0, are
        left out.
        """
        stored = self.set_layout(layout, 0)
        self.adopt(stored)
        if stored != layout:
            return False
        for index in range(1, max(layout.served, *layout.past, 1)):
            with suppress(StoreError):
                self.set_layout(layout, index)
        return True

    def follow(self, error: OtherLayout, index: int) -> None:
        """Follow the layout that a shard knows, or let it know the one that this process knows."""
        stored = Layout.read(error.stored)
        if stored is not None and stored.number > self.layout.number:
            self.adopt(stored)
        else:
            self.adopt(self.set_layout(self.layout, index))

    def set_layout(self, layout: Layout, index: int) -> Layout:
        """Store a layout in a shard, unless that knows a later one; return the one that it knows. One round trip."""
        return Layout.read(self._shard(index).run(_SET_LAYOUT, [layout.number, layout.text])) or layout

    def check(self, *, force: bool = False, shard: int = 0) -> None:
        """Compare SHARDS with the layout that a shard knows. One round trip, mostly. See `Store.check_shards()`."""
        stored = self.read(shard)
        if stored is None and shard:
            stored = self.read()
        self.is_checked = False
        if stored is None:
            self.store(Layout.of(self._setting, number=self.layout.number + 1))
        elif self._setting != stored.shards and (force or self._setting not in stored.past):
            if not force:
                self._check_change(stored)
            self.store(Layout.of(self._setting, number=self.layout.number + 1))
        elif self._setting != stored.shards:
            self._warn(stored)
        self.is_checked = True

    def _warn(self, stored: Layout) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "SHARDS is %d, but the jobs are spread over %d shards since delayq_shards changed it; this "
                "process follows. Set SHARDS to %d with the next deploy.",
                self._setting,
                stored.shards,
                stored.shards,
            )

    def _check_change(self, stored: Layout) -> None:
        """Raise `ShardsChanged` if a changed SHARDS would lose jobs or hold a key in two shards."""
        setting, command = self._setting, "--grow" if self._setting > stored.shards else "--shrink"
        cure = (
            f"set it back, and run delayq_shards {command} {setting}; or set it back until the jobs are done and the "
            f"schedules are deleted, or start run_dispatcher once with --force-shards."
        )
        if not stored.is_finished:
            raise ShardsChanged(
                f"DELAYQ['SHARDS'] changed from {stored.shards} to {setting} while something is left of an older "
                f"number of shards: {cure}"
            )
        for index in range(stored.shards):
            shard = self._shard(index)
            lengths = [["HLEN", shard.keys(noun)] for noun in _NOUNS]
            keyed, jobs, dead, schedules, size = shard.execute_all([*lengths, ["STRLEN", shard.keys("declared_by")]])
            left, at_run_time = jobs + dead, schedules - DeclaredBy.count(size)
            if keyed or at_run_time > 0 or (left and index >= setting):
                raise ShardsChanged(
                    f"DELAYQ['SHARDS'] changed from {stored.shards} to {setting} while shard {index} holds {left} "
                    f"jobs, {keyed} of them keyed, and {max(0, at_run_time)} recurring schedules that were set at run "
                    f"time: {cure}"
                )
