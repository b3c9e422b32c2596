"""Punctuality: how late the jobs of many schedules begin, all due at one second or spread by jitter, on two workers."""

import time
from collections import Counter
from pathlib import Path

from benchmarks.local.services import running, value_at
from benchmarks.schedules.digests import (
    DISPATCHER,
    WORKER,
    cpu_of_processes,
    cpu_of_redis,
    enqueue,
    hourly,
    name_of,
    planted,
    store,
    wait_until,
    waiting,
)
from benchmarks.schedules.runs import count_runs, runs
from django_delayq.clock import HOUR_US, SECOND_US
from django_delayq.recurring.rule import Every
from django_delayq.recurring.schedule import Schedule

#: Most seconds until the last job of one second begins, and most ms that 99 of 100 jobs begin late with jitter.
TARGET_LAST, TARGET_P99 = 20.0, 5.0
#: Schedules that are stored and planted a second at least; seconds beside that until the jobs are due.
_SLOWEST, _LEAD = 2_500, 20


def instant(count: int, path: Path) -> bool:
    """Print when the last of the jobs of one second begins. Returns whether that is too late, or a job is wrong."""
    late, is_wrong, used = _run(count, path, jitter=0)
    last = late[-1] / 1_000
    print(f"instant: {used}; the last one began {last:.1f} s after its time (target {TARGET_LAST:.0f} s)", flush=True)
    return is_wrong or last > TARGET_LAST


def spread(count: int, path: Path, *, jitter: int) -> bool:
    """Print how late jobs with jitter begin. Returns whether that is too late, or a job is wrong."""
    late, is_wrong, used = _run(count, path, jitter=jitter)
    print(
        f"jitter: {used}; spread over {jitter} s they begin late by {_figures(late)} (target p99 {TARGET_P99:.0f} ms)",
        flush=True,
    )
    return is_wrong or value_at(late, 0.99) > TARGET_P99


def floor(count: int, path: Path, *, jitter: int) -> bool:
    """Print how late the same jobs begin without schedules. Returns whether a job is wrong."""
    late, is_wrong, used = _run(count, path, jitter=jitter, is_recurring=False)
    print(f"floor: {used}; spread over {jitter} s they begin late by {_figures(late)}", flush=True)
    return is_wrong


def _figures(late: list[float]) -> str:
    return f"p50 {value_at(late, 0.5):.1f} ms, p99 {value_at(late, 0.99):.1f} ms, at most {late[-1]:.1f} ms"


def _run(count: int, path: Path, *, jitter: int, is_recurring: bool = True) -> tuple[list[float], bool, str]:
    """Run one job of each schedule; return the ms for which each was late, sorted, whether one is wrong, and a text.

    The jobs of the next hour are planted meanwhile, in its first six minutes. Without `is_recurring`, jobs without
    schedules are due at the same moments, and nothing is planted.
    """
    slot = int(time.time()) + 2 * count // _SLOWEST + _LEAD
    if is_recurring:
        store(hourly(count, second=slot % 3_600, jitter=jitter or None))
        with planted(count):
            pass
    else:
        enqueue(count, due_us=lambda number: _due_us(number, slot, jitter))
    cpu, redis = cpu_of_processes(), cpu_of_redis()
    with running([DISPATCHER, WORKER, WORKER]):
        assert time.time() < slot - 5, "the machine is too slow: the jobs were due before they were planted"
        time.sleep(slot + jitter - time.time())
        wait_until(lambda: count_runs(path) >= count, count, what="all runs")
        # Whatever runs twice does so now.
        time.sleep(1)
        left = waiting()
    cpu, redis = cpu_of_processes() - cpu, cpu_of_redis() - redis
    found = list(runs(path))
    times = Counter(run.number for run in found)
    wrong = count - len(times) + sum(each - 1 for each in times.values())
    late = sorted((run.began_us - _due_us(run.number, slot, jitter)) / 1_000 for run in found)
    early = sum(each < 0 for each in late)
    used = (
        f"{len(found):,} runs of {count:,} jobs, {wrong} lost or twice, {early} early, {left:,} of the next hour "
        f"planted; {cpu:.1f} s CPU of the processes and {redis:.1f} s of Redis"
    )
    return late, bool(wrong or early), used


def _due_us(number: int, slot: int, jitter: int) -> int:
    """Return when a job is due. The jobs themselves know it to the millisecond only."""
    schedule = Schedule(name=name_of(number), rule=Every(HOUR_US), jitter_us=jitter * SECOND_US)
    return schedule.due_us(slot * SECOND_US)
