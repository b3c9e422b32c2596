"""Figures: what monitoring says about the store, read at one moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

from django_delayq.display.text import printable
from django_delayq.load_forecast import QueueLoad, slots_needed
from django_delayq.metrics import MINUTE_US
from django_delayq.monitoring import delays
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.delays import LATE_US, NEXT_MINUTES, DelayForecast
from django_delayq.monitoring.store_view import StoreView
from django_delayq.store.client.reading import Reading, together
from django_delayq.store.queries.endings import EndingQueries, newest_endings
from django_delayq.store.queries.snapshot import Snapshot
from django_delayq.store.queries.totals import Totals, TotalsQueries, combined_totals

#: What is answered if the package of the extra is missing.
NEEDS_PACKAGE = "Metrics need prometheus-client: pip install 'django-delayq[prometheus]'\n"


@dataclass(frozen=True)
class Figures(StoreView):
    """The figures of all shards that answer. Three round trips: one, and two of the forecast."""

    accuracy: Accuracy

    def load_snapshot(self, **options: Any) -> Snapshot:
        """Read the snapshots; in the same round trip the totals and, once a minute, the last endings."""
        compares = self.accuracy.is_old

        def of_shard(number: int) -> Reading[list[Any]]:
            shard = self.store.producer_shard(number)
            readings: list[Reading[Any]] = [
                self.store.dashboard(number).read_snapshot(**options),
                TotalsQueries(shard).read_totals(),
            ]
            return together([*readings, EndingQueries(shard).read_endings()] if compares else readings)

        found = self.reads.read(of_shard)
        times_us = self.reads.times_us
        self.keep_snapshots({shard: parts[0].measured(*times_us[shard]) for shard, parts in found.items()})
        self.__dict__["totals"] = combined_totals(parts[1] for parts in found.values())
        if compares:
            most = self.store.config.worker.finished_kept
            self.accuracy.compare(self, newest_endings((parts[2] for parts in found.values()), most))
        return self.snapshot

    @cached_property
    def totals(self) -> Totals:
        """What was counted since the shards began."""
        self.load_snapshot()
        return self.totals

    @cached_property
    def forecast(self) -> DelayForecast:
        """What comes due within a day, and how late it starts."""
        return delays.read(self)

    @property
    def due_within(self) -> Mapping[int, int]:
        """Seconds ahead -> scheduled jobs that come due until then, with those that are overdue."""
        overdue = self.snapshot.total.overdue
        return {seconds: overdue + number for seconds, number in self.forecast.due_within.items()}

    @property
    def forecast_off_seconds(self) -> float | None:
        """How far the forecast was off within the last hour; None if no finished job is known."""
        # The comparison is part of the first round trip.
        return self.accuracy.off_seconds if self.snapshot else None

    @property
    def slots_per_worker(self) -> int:
        """The mean number of slots of the workers; if there is none, CONCURRENCY."""
        found = [worker.slots for worker in self.workers]
        return max(1, round(sum(found) / len(found))) if found else self.store.config.worker.concurrency

    @cached_property
    def queue_slots_needed(self) -> Mapping[str, int]:
        """Queue -> slots that start each of its jobs of the next 15 minutes in time; none for a paused queue."""
        return {name: _slots([load]) + self._held(name) for name, load in self._next_loads.items()}

    @cached_property
    def workers_needed(self) -> int:
        """How many workers of that size start every job of the next 15 minutes within a minute of its time.

        From what waits, what comes due, and the mean run time of each queue's jobs within the last hour. Jobs that run,
        and take longer than a minute, keep their slots.
        """
        slots = _slots(self._next_loads.values()) + sum(map(self._held, self._next_loads))
        return ceil(max(slots, self.snapshot.claimed) / self.slots_per_worker)

    @cached_property
    def _next_loads(self) -> Mapping[str, QueueLoad]:
        """The loads of the next minutes of the queues that are not paused."""
        return {
            name: replace(load, due=load.due[:NEXT_MINUTES])
            for name, load in self.forecast.loads.items()
            if self.snapshot.queues[name].paused is None
        }

    def _held(self, queue: str) -> int:
        """Return how many slots the running jobs of a queue keep: none if such jobs soon end."""
        is_long = self.forecast.loads[queue].run_us > LATE_US
        return self.snapshot.claimed_of(queue, lease_us=self.store.config.worker.lease_us) if is_long else 0


def _slots(loads: Iterable[QueueLoad]) -> int:
    return slots_needed(loads, step_us=MINUTE_US, within_us=LATE_US)


def label(name: str) -> str:
    """Return the name of a queue or task as monitoring shows it: printable, and different for each name."""
    return printable(name.replace("\\", r"\\"))
