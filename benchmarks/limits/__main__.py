"""The command: python -m benchmarks.limits [seconds]

A dispatcher and four workers, two of which are killed on the way, run jobs under three limits in turn: 100 a second
with a burst of 20; 30 a minute for each of 1,000 values; and three at a time. It prints how many jobs were claimed in
the fullest second, and how many began; the share of the rate that was used, and how long slots stood idle while jobs
waited. It fails if a limit was exceeded.
"""

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local.services import MANAGE, project, running, value_at

RATE, BURST, VALUES, MOST_RUNNING = 100, 20, 1_000, 3
#: Jobs a second of each value: 500 in all, which the workers can run on two cores.
RATE_OF_VALUE = 0.5
#: Shares of the time after which a worker is killed.
KILLED_AFTER = (0.3, 0.6)
#: Bounds of the ms for which a slot is idle: 99 of 100, all, and those of a killed worker, whose lease is 5 s.
LONGEST_P99, LONGEST, COMES_BACK = 50.0, 500.0, 7_000.0
SECOND = 1_000_000


@dataclass(slots=True)
class Run:
    """One run of a job; times in µs."""

    value: int
    claimed: int
    began: int
    #: 0: its worker was killed.
    ended: int = 0


def main() -> None:
    """Measure, and print the figures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with project("benchmarks.limits.settings") as path:
        from benchmarks.limits import tasks

        measures: list[tuple[object, int, Callable[[list[Run], list[int]], bool]]] = [
            (tasks.rated, 1, _print_rate),
            (tasks.rated_by_value, VALUES, _print_values),
            (tasks.running, 1, _print_running),
        ]
        exceeded = []
        for task, values, show in measures:
            path.write_text("")
            count = int(1.5 * (RATE if values == 1 else RATE_OF_VALUE * values) * seconds)
            kills = []
            with _workers() as workers:
                task.enqueue_many([number % values] for number in range(count))  # type: ignore[attr-defined]
                while not path.stat().st_size:
                    time.sleep(0.01)
                begin = time.monotonic()
                for after, worker in zip(KILLED_AFTER, workers, strict=False):
                    time.sleep(max(0.0, begin + after * seconds - time.monotonic()))
                    kills.append(time.time_ns() // 1_000)
                    worker.kill()
                time.sleep(max(0.0, begin + seconds - time.monotonic()))
                runs = _runs(path)
            _cancel_waiting()
            exceeded.append(show(runs, kills))
    sys.exit(any(exceeded))


def _cancel_waiting() -> None:
    """Cancel the jobs that are left."""
    from django_delayq import queue

    queue("default").jobs().cancel()


def _print_rate(runs: list[Run], kills: list[int]) -> bool:
    claimed, used = _fullest(run.claimed for run in runs), _used(runs, RATE, BURST)
    # By the clock of the machine, and after the time from the claim to the code.
    began = _fullest(run.began for run in runs)
    print(
        f"100/s, burst 20: {len(runs):,} jobs, {claimed} claimed and {began} begun in the fullest second, "
        f"{used:.1%} of the rate used",
        flush=True,
    )
    return claimed > RATE + BURST or began > 1.05 * (RATE + BURST)


def _print_values(runs: list[Run], kills: list[int]) -> bool:
    by_value = defaultdict(list)
    for run in runs:
        by_value[run.value].append(run)
    fullest = max(_fullest(run.claimed for run in of_value) for of_value in by_value.values())
    used = sorted(_used(of_value, RATE_OF_VALUE, 1) for of_value in by_value.values())
    print(
        f"30/m for each of {len(by_value):,} values: {len(runs):,} jobs, {fullest} in the fullest second of a value, "
        f"{used[len(used) // 2]:.1%} of the rate used (median), {used[len(used) // 20]:.1%} (5 %)",
        flush=True,
    )
    return fullest > 1


def _print_running(runs: list[Run], kills: list[int]) -> bool:
    ends = sorted([(run.began, 1) for run in runs if run.ended] + [(run.ended, -1) for run in runs if run.ended])
    at_once = most = 0
    for _, change in ends:
        at_once += change
        most = max(most, at_once)
    gaps, of_killed = map(sorted, _gaps(runs, kills))
    idle = ", ".join(
        f"{name} {value_at(gaps, share):.1f} ms" for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )
    print(
        f"3 at a time: {len(runs):,} jobs, at most {most} at once; a slot was idle for {idle}, that of a killed worker "
        f"for {value_at(of_killed, 1.0):.0f} ms",
        flush=True,
    )
    is_slow = value_at(gaps, 0.99) > LONGEST_P99 or max(gaps, default=0) > LONGEST
    return most > MOST_RUNNING or is_slow or max(of_killed, default=0) > COMES_BACK


def _gaps(runs: list[Run], kills: list[int]) -> tuple[list[float], list[float]]:
    """Return the ms for which a slot was free although jobs waited; and the same for slots of killed workers.

    `kills` is when the workers were killed, µs since the epoch.
    """
    free = [(run.ended, False) for run in runs if run.ended]
    # A killed run frees its slot when its lease ends: nothing tells when, so its slot counts from its begin.
    free += [(run.began, True) for run in runs if not run.ended]
    begins = sorted(run.began for run in runs)[MOST_RUNNING:]
    gaps, of_killed, waiting = list[float](), list[float](), sorted(free)
    for began in begins:
        candidates = [each for each in waiting if each[0] <= began]
        if not candidates:
            continue
        # The slot that was freed last was taken, unless only that of a killed worker is left.
        chosen = max((each for each in candidates if not each[1]), default=candidates[0])
        waiting.remove(chosen)
        # The killed worker may have had the slot for a job whose code did not begin: nothing records that.
        is_of_killed = chosen[1] or any(chosen[0] <= kill <= began for kill in kills)
        (of_killed if is_of_killed else gaps).append((began - chosen[0]) / 1_000)
    return gaps, of_killed


def _fullest(moments: Iterable[int]) -> int:
    found, first, most = sorted(moments), 0, 0
    for number, moment in enumerate(found):
        while found[first] <= moment - SECOND:
            first += 1
        most = max(most, number - first + 1)
    return most


def _used(runs: list[Run], rate: float, burst: int) -> float:
    moments = sorted(run.claimed for run in runs)
    if len(moments) < 2 or moments[-1] == moments[0]:
        return 1.0
    return (len(moments) - burst) / (rate * (moments[-1] - moments[0]) / SECOND)


@contextmanager
def _workers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a dispatcher and four workers during the block, and yield the workers."""
    with running([(*MANAGE, "run_dispatcher"), *[(*MANAGE, "run_worker", "--concurrency", "2")] * 4]) as processes:
        yield processes[1:]


def _runs(path: Path) -> list[Run]:
    """Return the runs that the record has."""
    runs: dict[str, Run] = {}
    for line in path.read_text().splitlines():
        value, claimed, began, ended, lease = line.split()
        run = runs.setdefault(lease, Run(int(value), int(claimed), int(began)))
        run.ended = int(ended) or run.ended
    return list(runs.values())


if __name__ == "__main__":
    main()
