"""The command: python -m benchmarks.debounce [rounds]

50 producer processes call each of 50 keys ten times, in 100 seconds. It prints how late the keys run, on a bare loop
and on this project with a dispatcher and two workers; keys that do not run exactly once, and other errors.
"""

import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

from benchmarks.debounce.plan import CALLS, KEYS, PRODUCERS, calls_of, rule_of
from benchmarks.local.services import MANAGE, project, running, value_at

#: System -> the module with its `call()`, and the commands of its processes.
SYSTEMS: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "bare redis-py": ("floor", [(sys.executable, "-m", "benchmarks.debounce.floor")]),
    "django_delayq": ("tasks", [(*MANAGE, "run_dispatcher"), (*MANAGE, "run_worker"), (*MANAGE, "run_worker")]),
}
#: Seconds until all producers are started and connected; for the keys that are due last; and for a second run of one.
LEAD, LIMIT, WAIT_FOR_DUPLICATES = 6.0, 30.0, 2.0
#: µs between a key's due time as Redis and as the producers know it: ranks hold milliseconds.
TOLERANCE_US = 1_000


@dataclass(slots=True)
class Figures:
    """What happened to the keys of one system."""

    #: ms between due time and run of each key, and of each call.
    late: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, calls: dict[str, list[tuple[int, int]]], runs: dict[str, list[tuple[int, int]]]) -> None:
        """Add the keys of one round: when each of their calls began and returned, when they ran and were due (µs)."""
        for key, times in calls.items():
            rule = rule_of(int(key.rpartition(":")[2]))
            self.calls += ((returned - began) / 1_000 for began, returned in times)
            if not rule.is_one_series(times):
                self.errors["key was called too late: the machine is too slow for a figure"] += 1
            elif len(runs[key]) != 1:
                self.errors[f"key ran {len(runs[key])} times"] += 1
            else:
                [(ran_us, due_us)], (lowest_us, highest_us) = runs[key], rule.due_between(times)
                self.late.append((ran_us - due_us) / 1_000)
                if not lowest_us - TOLERANCE_US <= due_us <= highest_us + TOLERANCE_US:
                    self.errors["key was due at a wrong time"] += 1
                if ran_us < due_us:
                    self.errors["key ran early"] += 1

    def line(self) -> str:
        """Return the figures as a line of the table."""
        late, calls = sorted(self.late), sorted(self.calls)
        figures = (
            value_at(late, 0.5),
            value_at(late, 0.95),
            value_at(late, 1.0),
            value_at(calls, 0.5),
            value_at(calls, 0.95),
        )
        return f"{len(late):6,} " + " ".join(f"{each:8.1f}" for each in figures)


def main() -> None:
    """Measure the systems in turn, and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    figures = {system: Figures() for system in SYSTEMS}
    print(
        f"{PRODUCERS} producers, {KEYS} keys, {CALLS} calls of each key by each producer, {rounds} rounds", flush=True
    )
    with project("benchmarks.debounce.settings") as path:
        for number in range(rounds):
            for system in SYSTEMS:
                _measure(system, number, path, figures[system])
    print(f"{'ms':14} {'keys':>6} {'p50':>8} {'p95':>8} {'max':>8} {'call p50':>8} {'call p95':>8}")
    for system, found in figures.items():
        print(f"{system:14} {found.line()}")
    errors = [
        f"{system}: {count} × {text}" for system, found in figures.items() for text, count in found.errors.items()
    ]
    print("\n".join(errors) or "no errors")
    sys.exit(bool(errors))


def _measure(system: str, number: int, path: Path, figures: Figures) -> None:
    module, commands = SYSTEMS[system]
    with running(commands) as processes:
        keys = f"{system.replace(' ', '-')}:{number}"
        calls: dict[str, list[tuple[int, int]]] = defaultdict(list)
        produce = partial(_produce, f"benchmarks.debounce.{module}", keys, time.time() + LEAD)
        with ProcessPoolExecutor(PRODUCERS, mp_context=get_context("fork")) as pool:
            for called, errors in pool.map(produce, range(PRODUCERS)):
                figures.errors += errors
                for key, times in called.items():
                    calls[key] += times
        until, runs = time.monotonic() + LIMIT, _runs(path)
        while calls.keys() - runs.keys() and time.monotonic() < until:
            time.sleep(0.1)
            runs = _runs(path)
        time.sleep(WAIT_FOR_DUPLICATES)
        figures.add(calls, _runs(path))
        for process in processes:
            assert process.poll() is None, f"{process.args!r} ended"


def _produce(
    module: str, keys: str, begin: float, producer: int
) -> tuple[dict[str, list[tuple[int, int]]], Counter[str]]:
    """Call the keys as planned. Returns when the calls of each began and returned (µs since the epoch), and errors."""
    call, calls, errors = import_module(module).call, defaultdict(list), Counter[str]()
    # This opens the connection and loads the scripts; a worker that runs it is warm.
    call(f"{keys}:warm:{producer}", rule_of(0))
    for after, number in calls_of(producer):
        time.sleep(max(0.0, begin + after - time.time()))
        key, began_us = f"{keys}:{number}", time.time_ns() // 1_000
        try:
            call(key, rule_of(number))
        except Exception as error:
            errors[f"{type(error).__name__} of a call"] += 1
        else:
            calls[key].append((began_us, time.time_ns() // 1_000))
    return calls, errors


def _runs(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Return when the keys ran, and when they were due (µs since the epoch)."""
    runs = defaultdict(list)
    for line in path.read_text().splitlines():
        key, ran_us, due_us = line.split()
        runs[key].append((int(ran_us), int(due_us)))
    return runs


if __name__ == "__main__":
    main()
