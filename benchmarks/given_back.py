"""Given back: for how long a job that a stopped worker gives back runs on beside its next attempt.

Run in a venv with the tests' dependencies: python -m benchmarks.given_back [ROUNDS], 20 by default. Each round stops a
worker whose job ticks, beside another that takes it over; less than 0 is a gap. The figure of the promise is that of 19
rounds of 20.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.rehearsal import percentile, rehearse
from tests.subprocesses import Command, Processes

VARIANTS = [(shards, options) for shards in (1, 2, 4) for options in ((), ("--with-dispatcher",))]
#: Jobs that tick while their worker is stopped.
JOBS = 4


def overlap(processes: Processes, stopped: Command) -> float:
    """Return the seconds from the second attempt's start to the first one's last tick, of the worst job."""
    from tests.sample_app import tasks

    jobs = {job.id for job in tasks.tick.enqueue_many([(30,)] * JOBS)}
    processes.until(lambda: {run["id"] for run in processes.runs()} >= jobs, what="the jobs to run")
    takes_over = processes.worker("--concurrency", JOBS)
    assert stopped.end() == 0, stopped.output

    def again() -> dict[str, float]:
        begun = {run["id"]: run["at"] for run in processes.runs() if run["attempt"] == 2 and run["id"] in jobs}
        return begun if len(begun) == JOBS else {}

    begun = processes.until(again, what="the second attempts")
    ticks = [each for each in processes.events("tick") if each["id"] in jobs and each["pid"] == stopped.pid]
    takes_over.kill()
    return max(each["at"] - begun[each["id"]] for each in ticks)


def main(rounds: int) -> None:
    """Print a line a variant."""
    print(f"{'shards':8}{'options':20}{'median':>10}{'19 of 20':>10}{'worst':>10}   ms of overlap, {rounds} rounds")
    for shards, options in VARIANTS:
        seen = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder, rehearse(Path(folder)) as processes:
                processes.configure(SHARDS=shards, GRACE=0)
                processes.dispatcher()
                seen.append(overlap(processes, processes.worker("--concurrency", JOBS, *options)) * 1_000)
        figures = [percentile(seen, share) for share in (0.5, 0.95, 1)]
        print(f"{shards:<8}{' '.join(options):20}" + "".join(f"{figure:10.0f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
