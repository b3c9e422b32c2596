"""The command: python -m benchmarks.schedules [memory|set|plant] [--count N]

`memory` prints how many bytes of Redis a daily schedule takes with its waiting job, before and after its first run;
`set` how many schedules a second one client stores; `plant` how many one dispatcher plants. It fails beyond the
targets, which are for 1,000,000 schedules on an idle machine.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.local.services import project
from benchmarks.schedules.digests import client
from benchmarks.schedules.memory import memory
from benchmarks.schedules.rates import planting, setting

SCENARIOS = {"memory": memory, "set": setting, "plant": planting}


def main() -> None:
    """Measure the chosen scenarios, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules")
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS, help="default: all of them")
    parser.add_argument("--count", type=int, default=100_000, help="how many schedules")
    options = parser.parse_args()
    chosen = [options.scenario] if options.scenario else list(SCENARIOS)
    with project("benchmarks.schedules.settings") as path:
        exceeded = [_measure(name, options.count, path) for name in chosen]
    sys.exit(any(exceeded))


def _measure(name: str, count: int, path: Path) -> bool:
    client().flushall()
    path.write_bytes(b"")
    return SCENARIOS[name](count, path)


if __name__ == "__main__":
    main()
