"""The command: python -m benchmarks.schedules [memory|set|plant|instant|jitter|floor] [--count N] [--jitter SECONDS]

`memory` prints how many bytes of Redis a daily schedule takes with its waiting job, before and after its first run;
`set` how many schedules a second one client stores; `plant` how many one dispatcher plants. `instant` and `jitter` run
one job of each schedule on two workers, while a dispatcher plants the next ones: `instant` prints when the last one
begins of those that are due at one second, `jitter` how late they begin if they are spread over five minutes, and
`floor` how late the same jobs begin without schedules.

It fails beyond the targets, and if a job does not run exactly once. The targets are for an idle machine, and for
1,000,000 schedules; of `instant` and `jitter` for 100,000.
"""

import argparse
import sys
from functools import partial

from benchmarks.local.services import project
from benchmarks.schedules.digests import client
from benchmarks.schedules.memory import memory
from benchmarks.schedules.punctuality import floor, instant, spread
from benchmarks.schedules.rates import planting, setting

SCENARIOS = {"memory": memory, "set": setting, "plant": planting, "instant": instant, "jitter": spread, "floor": floor}


def main() -> None:
    """Measure the chosen scenarios, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules")
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS, help="default: all of them")
    parser.add_argument("--count", type=int, default=100_000, help="how many schedules")
    parser.add_argument(
        "--jitter", type=int, default=300, help="seconds over which the jobs of jitter and floor are spread"
    )
    options = parser.parse_args()
    scenarios = {**SCENARIOS, **{name: partial(SCENARIOS[name], jitter=options.jitter) for name in ("jitter", "floor")}}
    exceeded = []
    with project("benchmarks.schedules.settings") as path:
        for name in [options.scenario] if options.scenario else scenarios:
            client().flushall()
            path.write_bytes(b"")
            exceeded.append(scenarios[name](options.count, path))
    sys.exit(any(exceeded))


if __name__ == "__main__":
    main()
