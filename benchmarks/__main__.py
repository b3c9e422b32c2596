"""The command: python -m benchmarks [--short | --contenders | --tuned] [--minutes N] [--more FILE] ...

It writes benchmarks/results/<time>.json after each measurement, and at the end docs/reference/benchmarks.md with its
charts. The short run prints its tables instead. `--more` adds rounds to the file of an earlier run, `--report` only
rewrites the page from one. `--pin` runs the server, the workers and the producer on the CPUs that it names.
"""

import argparse
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import growth, machine
from benchmarks.report.page import show, write_page
from benchmarks.results import FLOOR, FOLDER, OURS, Results
from benchmarks.run_record import InvalidRun
from benchmarks.scenarios import SCENARIOS
from benchmarks.selection import PEERS, Selection
from benchmarks.sizes import SHORT, WHOLE, Sizes
from benchmarks.trial import TrialFailed, describe_system
from benchmarks.venvs import NoVenv, python_of, versions

#: The scenarios of `make bench`, in small sizes.
SHORT_SCENARIOS = ("enqueue", "bulk", "drain", "account", "trips", "lateness")
#: The scenarios that every round repeats; the others measure steady states once.
ROUNDS = (
    *("enqueue", "bulk", "drain", "drain_write", "drain_two", "account", "trips", "lateness", "instant"),
    "django_run",
)
#: Measures this project alone, at several sizes (`growth.py`).
GROWTH = "growth"


def main() -> None:
    """Measure, and report the results."""
    options = _options()
    if options.report:
        return write_page(Results.read(options.report), only=options.marks)
    if options.pin:
        # All processes of a measurement are children of this one, and inherit it.
        os.sched_setaffinity(0, {int(cpu) for cpu in options.pin.split(",")})
    sizes = replace(SHORT if options.short else WHOLE, **({"rounds": options.rounds} if options.rounds else {}))
    scenarios = SHORT_SCENARIOS if options.short else (*SCENARIOS, GROWTH)
    selection = Selection(
        systems=options.systems.split(",") if options.systems else (OURS, FLOOR, *PEERS),
        scenarios=options.scenarios.split(",") if options.scenarios else scenarios,
        contenders=options.contenders or options.short,
        tuned=options.tuned or options.contenders or options.short,
    )
    path = options.more or FOLDER / time.strftime("%Y%m%d-%H%M%S.json")
    results = Results.read(path) if options.more else Results.empty(machine.facts(), asdict(sizes))
    for system in dict.fromkeys(
        system for scenario in selection.scenarios for system in selection.systems_of(scenario)
    ):
        if system not in results.systems:
            _add_system(results, system)
    try:
        _run(results, path, selection, sizes, until=time.monotonic() + 60 * options.minutes)
        if GROWTH in selection.scenarios:
            results.content["growth"] = growth.measure([int(size) for size in options.growth.split(",")])
            results.write(path)
    finally:
        # Also report an interrupted run: each measurement is valid by itself.
        print(f"\n{path}")
        if options.short:
            show(results)
        else:
            write_page(results, only=options.marks)
    return None


def _run(results: Results, path: Path, selection: Selection, sizes: Sizes, *, until: float) -> None:
    for number in range(sizes.rounds):
        for scenario in selection.scenarios:
            if scenario != GROWTH and (not number or scenario in ROUNDS):
                for system, configuration in list(selection.measurements(results, scenario)):
                    if time.monotonic() < until:
                        _measure(results, scenario, system, configuration, number, sizes)
                        results.write(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules["__main__"].__doc__)
    parser.add_argument(
        "--short", action="store_true", help="only contenders, a few scenarios and small sizes: 5 minutes"
    )
    parser.add_argument(
        "--contenders", action="store_true", help="only the peers close to the best of each scenario: 15 minutes"
    )
    parser.add_argument(
        "--tuned", action="store_true", help="all systems, but only as configured for speed: 50 minutes"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="start no measurement after so many minutes")
    parser.add_argument("--systems", help="names of adapters, comma-separated")
    parser.add_argument("--scenarios", help=", ".join((*SCENARIOS, GROWTH)))
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--growth",
        default="1000,100000,1000000",
        help="numbers of scheduled jobs, comma-separated; 10000000 takes 3 GiB",
    )
    parser.add_argument("--more", type=Path, help="add rounds to this file of an earlier run")
    parser.add_argument("--report", type=Path, help="rewrite the page from this file, measure nothing")
    parser.add_argument("--marks", nargs="+", metavar="MARK", help="rewrite only these marks of the page")
    parser.add_argument("--pin", metavar="CPU", help="run everything on this CPU, or on these, comma-separated")
    return parser.parse_args()


def _add_system(results: Results, system: str) -> None:
    """Add a system to the results; if it cannot be installed, with the reason."""
    try:
        results.systems[system] = describe_system(system) | {"versions": versions(python_of(system))}
    except (NoVenv, TrialFailed) as error:
        print(f"{system}: {error}")
        blank = {"name": system, "configurations": {}, "wait_configurations": {}, "versions": {}}
        results.systems[system] = blank | {"unsupported": dict.fromkeys(SCENARIOS, str(error))}


def _measure(results: Results, scenario: str, system: str, configuration: str, number: int, sizes: Sizes) -> None:
    print(f"{number + 1} {scenario:15} {system:18} {configuration:9}", end=" ", flush=True)
    record = {"scenario": scenario, "system": system, "configuration": configuration, "round": number, "figures": {}}
    try:
        record["figures"] = SCENARIOS[scenario](system, configuration, sizes)
        print("  ".join(f"{name} {value:,.2f}" for name, value in record["figures"].items()))
    except (TrialFailed, InvalidRun) as error:
        record["reason"] = str(error)
        print(f"– {error}")
    results.records.append(record)


if __name__ == "__main__":
    main()
