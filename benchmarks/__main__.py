"""The command: python -m benchmarks [--short | --contenders | --tuned] [--minutes N] [--more FILE] ...

Measures, writes benchmarks/results/<time>.json after each measurement, and makes docs/benchmarks.md and its charts from
it; the short run shows its tables and changes no page. `--more` adds rounds to an earlier run's file, `--report` makes
the page anew from one.
"""

import argparse
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import growth, machine
from benchmarks.choice import PEERS, Choice
from benchmarks.ledger import Untrue
from benchmarks.page import show, write_page
from benchmarks.results import FLOOR, FOLDER, OURS, Results
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import SHORT, WHOLE, Sizes
from benchmarks.trial import Failed, about
from benchmarks.venvs import NoVenv, python_of, versions

#: What `make bench` shows, in small sizes.
SHORT_SCENARIOS = ("enqueue", "bulk", "drain", "account", "trips", "lateness")
#: What is repeated; the others are steady states.
ROUNDS = ("enqueue", "bulk", "drain", "drain_two", "account", "trips", "lateness", "instant")
#: Ours alone, with a size as its only measure (`growth.py`).
GROWTH = "growth"


def main() -> None:
    """Measure and report."""
    options = _options()
    if options.report:
        return write_page(Results.read(options.report))
    sizes = replace(SHORT if options.short else WHOLE, **({"rounds": options.rounds} if options.rounds else {}))
    every = SHORT_SCENARIOS if options.short else (*SCENARIOS, GROWTH)
    choice = Choice(
        systems=options.systems.split(",") if options.systems else (OURS, FLOOR, *PEERS),
        scenarios=options.scenarios.split(",") if options.scenarios else every,
        contenders=options.contenders or options.short,
        tuned=options.tuned or options.contenders or options.short,
    )
    path = options.more or FOLDER / time.strftime("%Y%m%d-%H%M%S.json")
    results = Results.read(path) if options.more else Results.empty(machine.facts(), asdict(sizes))
    for system in dict.fromkeys(system for scenario in choice.scenarios for system in choice.chosen(scenario)):
        if system not in results.systems:
            _present(results, system)
    try:
        _run(results, path, choice, sizes, until=time.monotonic() + 60 * options.minutes)
        if GROWTH in choice.scenarios:
            results.content["growth"] = growth.measure([int(size) for size in options.growth.split(",")])
            results.write(path)
    finally:
        # Also of a run that was ended early: each measurement stands for itself.
        print(f"\n{path}")
        (show if options.short else write_page)(results)
    return None


def _run(results: Results, path: Path, choice: Choice, sizes: Sizes, *, until: float) -> None:
    for number in range(sizes.rounds):
        for scenario in choice.scenarios:
            if scenario != GROWTH and (not number or scenario in ROUNDS):
                for system, configuration in list(choice.turns(results, scenario)):
                    if time.monotonic() < until:
                        _measure(results, scenario, system, configuration, number, sizes)
                        results.write(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules["__main__"].__doc__)
    parser.add_argument("--short", action="store_true", help="contenders, a few scenarios and small sizes: 5 minutes")
    parser.add_argument(
        "--contenders", action="store_true", help="in each scenario the peers near its best: 15 minutes"
    )
    parser.add_argument("--tuned", action="store_true", help="all, but only as configured for speed: 50 minutes")
    parser.add_argument("--minutes", type=float, default=1e6, help="after these no further measurement begins")
    parser.add_argument("--systems", help="names of adapters, comma-separated")
    parser.add_argument("--scenarios", help=", ".join((*SCENARIOS, GROWTH)))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--growth", default="1000,100000,1000000", help="sizes of our schedule; 10000000 takes 3 GiB")
    parser.add_argument("--more", type=Path, help="add to this file of an earlier run")
    parser.add_argument("--report", type=Path, help="make the page anew from this file, measure nothing")
    return parser.parse_args()


def _present(results: Results, system: str) -> None:
    """Write down what a system is; one that cannot be installed is there with the reason."""
    try:
        results.systems[system] = about(system) | {"versions": versions(python_of(system))}
    except (NoVenv, Failed) as error:
        print(f"{system}: {error}")
        blank = {"name": system, "configurations": {}, "waits": {}, "versions": {}}
        results.systems[system] = blank | {"cannot": dict.fromkeys(SCENARIOS, str(error))}


def _measure(results: Results, scenario: str, system: str, configuration: str, number: int, sizes: Sizes) -> None:
    print(f"{number + 1} {scenario:14} {system:18} {configuration:9}", end=" ", flush=True)
    record = {"scenario": scenario, "system": system, "configuration": configuration, "round": number, "figures": {}}
    try:
        record["figures"] = SCENARIOS[scenario](system, configuration, sizes)
        print("  ".join(f"{name} {value:,.2f}" for name, value in record["figures"].items()))
    except (Failed, Untrue) as error:
        record["reason"] = str(error)
        print(f"– {error}")
    results.records.append(record)


if __name__ == "__main__":
    main()
