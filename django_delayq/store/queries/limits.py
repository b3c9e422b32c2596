"""Limits: what limits are used for, and which tasks are paused. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django_delayq.job.job import LimitUse
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.digests import limit_digest, limit_name_digest, paused_task_digest
from django_delayq.store.queries.snapshot import Pause, read_paused_tasks
from django_delayq.store.shard import Shard

_FIND_LIMITS = Script("find_limits")
#: Parts of the reply for each limit.
_PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """What a limit, or one value of it, is used for at the moment."""

    running: int
    waiting: int
    #: From when on a job may begin, µs since the epoch; None: when a job ends, or values differ.
    opens_us: int | None = None
    #: Whether that is now.
    is_open: bool = False
    #: Until when no job begins, since a task backed off; µs since the epoch.
    backs_off_until_us: int | None = None
    #: Whether jobs with values run or wait: each value has a state of its own, and only the counts are those of all.
    by_value: bool = False


class LimitQueries:
    """API of one shard that reads limits and paused tasks. Each call is one round trip."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def find_limits(self, limits: Sequence[LimitUse | str]) -> list[LimitState]:
        """Return the state of each limit; a name stands for all of its values together. O(log n) a limit."""
        return self._find(
            [limit_name_digest(each) if isinstance(each, str) else limit_digest(*each) for each in limits]
        )[1]

    def find_all(self, names: Sequence[str], tasks: Sequence[str] = ()) -> tuple[list[LimitState], list[int]]:
        """Return each limit with the counts of all its values, and how many jobs wait for each paused task.

        O(log n) a limit and task.
        """
        return self._shard.read(self.read_all(names, tasks))

    def read_all(self, names: Sequence[str], tasks: Sequence[str] = ()) -> Reading[tuple[list[LimitState], list[int]]]:
        """Return the reading of `find_all()`."""
        digests = [digest for name in names for digest in (limit_name_digest(name), limit_digest(name, None))]
        _, found = yield from self._read([*digests, *map(paused_task_digest, tasks)])
        limits = zip(found[: len(digests) : 2], found[1 : len(digests) : 2], strict=True)
        return [
            replace(
                alone,
                running=all_values.running,
                waiting=all_values.waiting,
                by_value=(all_values.running, all_values.waiting) != (alone.running, alone.waiting),
            )
            for all_values, alone in limits
        ], [state.waiting for state in found[len(digests) :]]

    def next_open_us(self) -> int | None:
        """Return when the next limit opens for which jobs wait, µs since the epoch. Two round trips, O(n).

        None: no job waits, one has to end before, or the limits are open.
        """
        digests = set(self._shard.execute("HVALS", self._shard.keys("waiting_for")))
        if not digests:
            return None
        now_us, states = self._find(sorted(digests))
        return min((state.opens_us for state in states if state.opens_us and state.opens_us > now_us), default=None)

    def _find(self, digests: Sequence[bytes]) -> tuple[int, list[LimitState]]:
        """Return Redis's time (µs since the epoch), and the states."""
        return self._shard.read(self._read(digests))

    def _read(self, digests: Sequence[bytes]) -> Reading[tuple[int, list[LimitState]]]:
        [[now_us, *reply]] = yield [self._shard.call(_FIND_LIMITS, digests)]
        return now_us, [
            LimitState(
                running=running,
                waiting=waiting,
                opens_us=int(opens) if opens else None,
                is_open=bool(opens) and int(opens) <= now_us,
                backs_off_until_us=int(backs_off) or None,
            )
            for running, waiting, opens, backs_off in (reply[at : at + _PARTS] for at in range(0, len(reply), _PARTS))
        ]

    def paused_tasks(self) -> dict[str, Pause]:
        """Return the paused tasks. O(n)."""
        return read_paused_tasks(self._shard.execute("HVALS", self._shard.keys("paused_tasks")))


def combined_limits(states: Sequence[LimitState]) -> LimitState:
    """Return the state of a limit in all shards. One without values is in one shard; the others say that it is open."""
    moments = [state.opens_us for state in states if state.opens_us is not None]
    return LimitState(
        running=sum(state.running for state in states),
        waiting=sum(state.waiting for state in states),
        opens_us=max(moments) if len(moments) == len(states) else None,
        is_open=all(state.is_open for state in states),
        backs_off_until_us=max((state.backs_off_until_us or 0 for state in states), default=0) or None,
        by_value=any(state.by_value for state in states),
    )
