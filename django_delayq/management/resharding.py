"""Resharding: the steps of `delayq_shards` in their order. Each call goes on where another one ended."""

from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic, sleep

from django.core.management.base import CommandError

from django_delayq.job.layout import Layout
from django_delayq.management.operating import WRONG_OPTIONS
from django_delayq.store.growth.growth import Growth
from django_delayq.store.growth.layouts import LEARN_EVERY
from django_delayq.store.queries.snapshot import absences
from django_delayq.store.store import Store

#: Seconds between two looks at the processes, and at the schedules whose jobs run.
_LOOK_AGAIN = 0.5


class Resharding:
    """One change of the number of shards of a store. `report` gets a sentence about each step."""

    def __init__(self, store: Store, report: Callable[[str], object]) -> None:
        self._store, self._report = store, report
        self._growth = Growth(store.layouts, store.producer_shard)

    def read_layout(self) -> Layout:
        """Return the stored layout. One round trip."""
        self._store.layouts.read_any()
        return self._store.layout

    def grow(self, shards: int, *, wait: float, force: bool) -> dict[int, Counter[str]]:
        """Spread what is new over more shards; return what is left in the old ones. Raises CommandError.

        `wait`: seconds to wait for processes to serve the new shards, and as many again for schedules whose jobs run.
        """
        self.check_number(shards)
        layout = self.read_layout()
        if layout.shards != shards:
            self._check_can_grow(layout)
            self._growth.announce(shards)
            self._report(f"{shards} shards are announced; the new ones get no jobs yet.")
            self._await_processes(shards, wait=wait, force=force)
            # Another command may have grown further meanwhile, or taken the announcement back.
            self.check_number(shards)
            layout = self.read_layout()
            if layout.shards != shards and layout.coming < shards:
                raise CommandError(
                    f"Another command changed the number of shards meanwhile; there are {layout.shards}."
                )
            self._growth.copy_rules()
            self._growth.spread_over(shards)
            self._report(f"New jobs are spread over {shards} shards.")
        else:
            self._growth.spread_over(shards)
        # Again: somebody may have paused a queue before all processes knew the shards.
        self._growth.copy_rules()
        return self.finish(wait=wait)

    def shrink(self, shards: int, *, wait: float) -> dict[int, Counter[str]]:
        """Spread what is new over fewer shards; return what is left in the others. Raises CommandError.

        Repeated once nothing is left, it drops them. The present number takes the announcement of more back.
        """
        self.check_number(None, shards)
        layout = self.read_layout()
        if layout.shards != shards:
            self._check_finished(layout)
            self._growth.spread_over(shards)
            self._report(f"New jobs are spread over {shards} shards; the others get none, and their jobs run.")
        elif layout.coming:
            self._growth.take_back()
            self._report(f"The announcement of {layout.coming} shards is taken back.")
        return self.finish(wait=wait)

    def finish(self, *, wait: float) -> dict[int, Counter[str]]:
        """Move recurring schedules, and forget older numbers of shards if nothing is left of them; return what is.

        `wait`: seconds for which schedules whose jobs run are tried again.
        """
        layout, began = self.read_layout(), monotonic()
        if layout.is_finished:
            self._report_finished()
            return {}
        # First: as long as a shard is not counted, nothing new goes to another one.
        self._growth.count()
        unmoved = self._growth.move_schedules()
        while unmoved and monotonic() < began + wait:
            sleep(_LOOK_AGAIN)
            unmoved = self._growth.move_schedules()
        left = self.left()
        if not left and not unmoved and layout.draining:
            # A producer may not know yet that it must not use the shards that are dropped.
            sleep(max(0.0, began + LEARN_EVERY - monotonic()))
            left = self.left()
        if not left and not unmoved and self._growth.finish():
            self._report_finished()
        return left

    def left(self) -> dict[int, Counter[str]]:
        """Return what is left of older numbers of shards in each shard. O(n), in batches."""
        return self._growth.count()

    def check_number(self, grow: int | None, shrink: int | None = None) -> None:
        """Refuse to grow to fewer shards than there are now, and to shrink to more. Raises CommandError."""
        shards = self.read_layout().shards
        if grow is not None and grow < shards:
            text = f"There are {shards} shards; --grow takes a larger number, and --shrink a smaller one."
            raise CommandError(text, returncode=WRONG_OPTIONS)
        if shrink is not None and shrink > shards:
            text = f"There are {shards} shards; --shrink takes a smaller number, and --grow a larger one."
            raise CommandError(text, returncode=WRONG_OPTIONS)

    def _report_finished(self) -> None:
        self._report(f"Nothing is left of an older number of shards: there are {self._store.layout.shards} shards.")

    def _check_finished(self, layout: Layout) -> None:
        if not layout.is_finished:
            raise CommandError(
                f"Something is left of an older number of shards ({', '.join(map(str, layout.older))}), so the "
                f"{layout.shards} shards cannot be reduced yet: run delayq_shards --finish until nothing is left."
            )

    def _check_can_grow(self, layout: Layout) -> None:
        """Refuse what cannot be kept over several shards, if there is one."""
        if layout.served > 1:
            return
        if number := sum(len(values) > 1 for values in self._growth.routings(0)):
            raise CommandError(
                f"{number:,} jobs have several limits that would be kept in different shards: give the limits of a "
                f"task the same value, such as an account, and wait until these jobs are done."
            )
        for stored in self._store.schedules(0).scan():
            if stored.definition and stored.definition.job.limits:
                raise CommandError(
                    f"The jobs of the schedule {stored.full_name} have limits. With several shards these are kept in "
                    f"the shard of their value, and a schedule in that of its name: let its job enqueue another one."
                )

    def _await_processes(self, shards: int, *, wait: float, force: bool) -> None:
        """Wait until all processes that reported lately serve the new shards, and know where to pause queues."""
        start, absent = monotonic(), list(self._absent(shards))
        if absent:
            self._report("Waiting until the running processes serve them.")
        while absent and monotonic() - start < wait:
            sleep(_LOOK_AGAIN)
            absent = list(self._absent(shards))
        if absent and not force:
            raise CommandError(
                f"These processes do not serve the new shards after {wait:g} s: {', '.join(sorted(set(absent)))}. "
                f"Restart them with this release, or add --force. Nothing is lost: the new shards get no jobs yet."
            )
        # Those that only enqueue, or pause queues, do not report.
        sleep(max(0.0, start + LEARN_EVERY - monotonic()))

    def _absent(self, shards: int) -> Iterator[str]:
        """Yield the processes that serve a shard that has jobs, but not all of the new ones."""
        lease_us, old = self._store.config.worker.lease_us, self.read_layout().shards
        snapshots = {index: self._store.dashboard(index).snapshot() for index in range(shards)}
        for (kind, name), without in absences(snapshots, lease_us=lease_us).items():
            if without[-1] >= old and not set(range(old)) <= set(without):
                yield f"{kind} {name}"
