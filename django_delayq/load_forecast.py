"""Load forecast: how late jobs will start, from what is due, the mean run time, and the slots of the workers.

The model is a fluid: a queue holds work (µs), its workers do `slots` µs of it per µs, and what was due first starts
first. Queues that the same workers serve are one pool. A worker of several pools divides its slots by the work that
they hold, and takes from a pool that has other workers only what those leave. The model knows nothing of jobs that
nobody has enqueued yet, of retries, of limits, and of workers that come and go.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

#: How often the unused slots of a worker are offered to its other pools within a step.
_ROUNDS = 3
#: Most slots that `slots_needed()` considers.
_MOST_SLOTS = 1 << 20
#: Sums of floats that differ by less are the same amount of work.
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What a queue holds, and what comes due."""

    #: Jobs that wait for a worker now.
    ready: int
    #: Jobs that come due within each step.
    due: Sequence[float]
    #: Mean run time of a job in µs.
    run_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSlots:
    """The slots of a worker, and the queues that it serves."""

    slots: int
    queues: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepForecast:
    """One step: the jobs that are due within it, and the longest delay with which one of them starts."""

    due: float
    #: µs; None: nobody serves it, or the forecast ends before it starts.
    delay_us: int | None


@dataclass(slots=True, kw_only=True)
class _Pool:
    """Queues that the same workers serve. Work is in µs of one slot."""

    #: Work that waits for the workers, at the start and then at the end of the last step.
    waiting: float = 0.0
    #: Work and jobs that arrive within each step.
    work: list[float]
    jobs: list[float]
    #: Work that is done by the end of each step since the start, and that could have been done within the step.
    done: list[float] = field(default_factory=list)
    capacity: list[float] = field(default_factory=list)

    def reached_us(self, work: float, step_us: int) -> float | None:
        """Return when so much work is done, µs from the start; None: not within the forecast."""
        step = bisect_left(self.done, work * (1 - _EPSILON))
        if step == len(self.done):
            return None
        rest = work - (self.done[step - 1] if step else 0.0)
        return (step + (max(0.0, rest) / self.capacity[step] if self.capacity[step] else 0.0)) * step_us


def forecast(loads: Mapping[str, QueueLoad], workers: Iterable[WorkerSlots], *, step_us: int) -> list[StepForecast]:
    """Return the forecast of each step; all loads have as many steps. O(steps x pools x kinds of workers)."""
    kinds = _kinds(workers)
    pools: dict[frozenset[int], _Pool] = {}
    steps = max((len(load.due) for load in loads.values()), default=0)
    for name, load in loads.items():
        served = frozenset(at for at, (queues, _slots) in enumerate(kinds) if name in queues)
        pool = pools.setdefault(served, _Pool(work=[0.0] * steps, jobs=[0.0] * steps))
        pool.waiting += load.ready * load.run_us
        for step, number in enumerate(load.due):
            pool.work[step] += number * load.run_us
            pool.jobs[step] += number
    waiting = {served: pool.waiting for served, pool in pools.items()}
    _run(pools, [slots for _queues, slots in kinds], step_us)
    delays = [_delays_us(pool, waiting[served], step_us) for served, pool in pools.items()]
    found = []
    for step in range(steps):
        # A pool without jobs in this step delays nobody.
        late = [of_pool[step] for of_pool, pool in zip(delays, pools.values(), strict=True) if pool.jobs[step]]
        longest = None if None in late else max(filter(None, late), default=0)
        found.append(StepForecast(due=sum(pool.jobs[step] for pool in pools.values()), delay_us=longest))
    return found


def slots_needed(loads: Iterable[QueueLoad], *, step_us: int, within_us: int) -> int:
    """Return with how many slots, all of which serve all queues, every job starts in time. O(steps x log slots).

    The jobs of a step count as due at its start, since many may be due at one moment. There are never more slots than
    jobs: with as many, each starts at once.
    """
    waiting, jobs, steps = 0.0, 0.0, [0.0]
    for load in loads:
        steps += [0.0] * (len(load.due) - len(steps))
        waiting += load.ready * load.run_us
        jobs += load.ready + sum(load.due)
        for step, number in enumerate(load.due):
            steps[step] += number * load.run_us

    def is_enough(slots: int) -> bool:
        left = waiting
        for work in steps:
            left += work
            if left > slots * within_us:
                return False
            left = max(0.0, left - slots * step_us)
        return True

    return bisect_left(range(min(_MOST_SLOTS, ceil(jobs))), True, key=is_enough)


def _kinds(workers: Iterable[WorkerSlots]) -> list[tuple[frozenset[str], int]]:
    """Return the served queues and the slots of the workers that serve the same."""
    slots: dict[frozenset[str], int] = {}
    for worker in workers:
        slots[worker.queues] = slots.get(worker.queues, 0) + worker.slots
    return list(slots.items())


def _run(pools: Mapping[frozenset[int], _Pool], slots: Sequence[int], step_us: int) -> None:
    """Let the workers work, step by step."""
    for step in range(max((len(pool.work) for pool in pools.values()), default=0)):
        held = {served: pool.waiting + pool.work[step] for served, pool in pools.items()}
        free, done = [float(each * step_us) for each in slots], dict.fromkeys(pools, 0.0)
        for _ in range(_ROUNDS):
            # Those that serve few pools first: the others have a choice.
            for kind in sorted(range(len(free)), key=lambda kind: sum(kind in served for served in pools)):
                room = free[kind]
                left = {served: held[served] - done[served] for served in pools if kind in served}
                total = sum(left.values())
                for served, work in left.items():
                    # The share may be more than what the pool has left, which is why there are rounds.
                    taken = min(work, room * work / total) if total else 0.0
                    done[served] += taken
                    free[kind] -= taken
        for served, pool in pools.items():
            pool.waiting = held[served] - done[served]
            pool.done.append((pool.done[-1] if pool.done else 0.0) + done[served])
            pool.capacity.append(done[served] + sum(free[kind] for kind in served))


def _delays_us(pool: _Pool, waiting: float, step_us: int) -> list[int | None]:
    """Return the longest delay of the jobs of each step, which arrive evenly within it."""
    arrived, delays = waiting, list[int | None]()
    for step, work in enumerate(pool.work):
        # The delay changes evenly in between.
        moments = ((step, arrived), (step + 1, arrived + work))
        reached = [(at, pool.reached_us(amount, step_us)) for at, amount in moments]
        late = [None if us is None else max(0, round(us - at * step_us)) for at, us in reached]
        delays.append(None if None in late else max(filter(None, late), default=0))
        arrived += work
    return delays
