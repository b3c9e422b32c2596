"""start - due of jobs spread over time, and of jobs due at one instant: python -m benchmarks.lateness [jobs] [seconds]

One dispatcher and one worker, as processes. The floor is what select() with the same timers shows on this machine now.
"""

import select
import sys
import time
from datetime import UTC, datetime, timedelta

from benchmarks.site import Site, percentile, site, wait_until

INSTANT = 10_000


def main() -> None:
    """Measure and print."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    with site() as place:
        from benchmarks import tasks
        from django_delayq import enqueue_many

        place.run("run_dispatcher")
        place.run("run_worker")
        time.sleep(1)
        first = datetime.now(UTC) + timedelta(seconds=1)
        due = [first + timedelta(seconds=seconds * number / jobs) for number in range(jobs)]
        enqueue_many(tasks.note_start.at(moment).job(number, _us(moment)) for number, moment in enumerate(due))
        wait_until(lambda: len(place.starts()) >= jobs, seconds=seconds + 60)
        _print(f"{jobs} jobs over {seconds:g} s", place, jobs)
        place.ledger.write_text("")
        moment = datetime.now(UTC) + timedelta(seconds=3)
        enqueue_many(tasks.note_start.at(moment).job(number, _us(moment)) for number in range(INSTANT))
        wait_until(lambda: len(place.starts()) >= INSTANT, seconds=60)
        _print(f"{INSTANT} jobs due at one instant", place, INSTANT)
    print(f"floor: select() timers late by p50 {1000 * percentile(_floor(), 0.5):.3f} ms")


def _us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _print(title: str, place: Site, jobs: int) -> None:
    starts = place.starts()
    late = [(start - due) / 1000 for _, due, start in starts]
    once = len({number for number, _, _ in starts}) == len(starts) == jobs
    print(
        f"{title}: p50 {percentile(late, 0.5):.2f} ms, p99 {percentile(late, 0.99):.2f} ms, last {max(late):.2f} ms, "
        f"early {sum(ms < 0 for ms in late)}, each started once: {once}"
    )


def _floor() -> list[float]:
    late = []
    for _ in range(200):
        until = time.monotonic() + 0.005
        select.select([], [], [], until - time.monotonic())
        late.append(time.monotonic() - until)
    return late


if __name__ == "__main__":
    main()
