"""Accuracy: how far the forecast of start delays was off within the last hour."""

from collections.abc import Iterable
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.job.ending import Ending
from django_delayq.monitoring import delays
from django_delayq.monitoring.store_view import StoreView

#: Seconds for which a comparison is kept: it takes up to 10,000 endings.
_KEPT = 60.0


class Accuracy:
    """The last comparison of one process. Thread-safe: at worst, two threads compare at the same time."""

    def __init__(self) -> None:
        self._compare_at = 0.0
        #: The mean difference of the longest delays of each minute; None without finished jobs to compare.
        self.off_seconds: float | None = None

    @property
    def is_old(self) -> bool:
        """Whether it is time to compare again."""
        return monotonic() >= self._compare_at

    def compare(self, view: StoreView, endings: Iterable[Ending]) -> None:
        """Compare the forecast with the last endings."""
        found = delays.compare(view, endings)
        self.off_seconds = None if found is None else found.off_us / SECOND_US
        self._compare_at = monotonic() + _KEPT
