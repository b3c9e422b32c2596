"""Turned time: while dispatchers are killed, each occurrence has one job; after an outage, those that `catch_up` says.

The occurrences are computed again by another library, from wall times.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from django_delayq.clock import DAY_US, HOUR_US, SECOND_US
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Action
from django_delayq.recurring.run import RunOutcome
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import BATCH, Schedules
from tests.chaos.schedules.turned_clock import TurnedClock
from tests.chaos.schedules.turned_dispatchers import TurnedDispatchers
from tests.shard_apis import ShardApis, settlement
from tests.subprocesses import until

ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")]
MINUTE_US = 60 * SECOND_US
#: How many jobs a claim takes.
CLAIMED = 200
#: The longest outage: within the window of `catch_up="all"`.
LONGEST_OUTAGE = 20
CATCH_UPS = ("last", "none", "all")


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule of the test."""

    definition: Definition
    fields: str
    zone: ZoneInfo
    start_us: int
    end_us: int

    def expected(self) -> list[int]:
        """Return its occurrences, found without our own rules."""
        find = _by_moments if self.fields.startswith("*") or self.fields.split()[1].startswith("*") else _by_wall_times
        return list(find(self.fields, self.zone, self.start_us, self.end_us))


def _by_moments(fields: str, zone: ZoneInfo, start_us: int, end_us: int) -> Iterator[int]:
    """Yield the moments whose wall time matches: rules without fixed hours follow the clock."""
    minutes, hours = (
        set(range(most)) if each == ["*"] else set(each)
        for each, most in zip(croniter.expand(fields)[0][:2], (60, 24), strict=True)
    )
    for at in range(-(-start_us // MINUTE_US) * MINUTE_US, end_us + 1, MINUTE_US):
        wall = datetime.fromtimestamp(at // SECOND_US, zone)
        if wall.minute in minutes and wall.hour in hours:
            yield at


def _by_wall_times(fields: str, zone: ZoneInfo, start_us: int, end_us: int) -> Iterator[int]:
    """Yield the moments of matching wall times: the first of two; where none is, the moment at which clocks change."""
    first = datetime.fromtimestamp(start_us // SECOND_US, zone).replace(tzinfo=None) - timedelta(days=1)
    last = -1
    for wall in croniter(fields, first).all_next(datetime):
        moment = wall.replace(tzinfo=zone)
        exists = moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall
        # Without a wall time: the first second that exists after it.
        while not exists:
            wall += timedelta(seconds=1)
            moment = wall.replace(tzinfo=zone)
            exists = moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall
        at = round(moment.timestamp()) * SECOND_US
        if at > end_us:
            return
        if at >= start_us and at != last:
            yield at
        last = at


class TurnedTime:
    """Schedules, five dispatchers, and a worker that runs whatever is ready at each turn of the clock."""

    def __init__(self, url: str, folder: Path, *, start: datetime, seed: int) -> None:
        path = folder / "clock"
        self.now_us = round(start.timestamp()) * SECOND_US
        self.clock = TurnedClock.create(path, self.now_us)
        self.random = random.Random(seed)
        self.apis = ShardApis(url, clock=self.clock)
        self.dispatchers = TurnedDispatchers(url, path, count=5, random=self.random)
        self.known: dict[str, Known] = {}
        #: (name, occurrence) -> how many jobs ran.
        self.ran: Counter[tuple[str, int]] = Counter()
        #: From when until when nobody dispatched.
        self.outages: list[tuple[int, int]] = []

    def add(self, fields: str, zone: ZoneInfo, start_us: int, end_us: int) -> None:
        """Define a schedule; how it catches up, and its jitter, depend on how many there are."""
        number = len(self.known)
        catch_up: Any = CATCH_UPS[number % 3]
        options = {"start": _moment(start_us), "end": _moment(end_us), "catch_up": catch_up}
        if catch_up == "all":
            options |= {"overlap": ("wait", "allow")[number % 2], "jitter": 60 if number % 4 else None}
        schedule = make_schedule(f"{number}", cron=fields, tz=zone, now_us=self.now_us, **options)
        job = Job(raw_id=b"", shard=0, task="tests.sample_app.tasks.noop", queue="default")
        self.known[schedule.name] = Known(Definition(schedule, job), fields, zone, start_us, end_us)

    def store(self) -> None:
        """Store the schedules."""
        definitions = [known.definition for known in self.known.values()]
        schedules = Schedules(self.apis.store._producer_shards[0])
        for at in range(0, len(definitions), BATCH):
            schedules.set_schedules(definitions[at : at + BATCH])

    def turn_to(self, now_us: int, *, kill: float) -> None:
        """Turn the clock, and wait until everything that is due has run. Kills dispatchers, so often in a look."""
        self.now_us = now_us
        self.clock.turn(now_us)

        def is_done() -> bool:
            self._run_ready()
            if self.random.random() < kill:
                self.dispatchers.kill_one()
            return self._nothing_is_due()

        until(is_done, what="everything that is due to run")

    def outage(self, until_us: int, *, steps: list[int]) -> None:
        """Turn the clock while nobody dispatches; some jobs that were ready run."""
        self.dispatchers.kill_all()
        self.outages.append((self.now_us, until_us))
        for now_us in (*steps, until_us):
            self.now_us = now_us
            self.clock.turn(now_us)
            self._run_ready()
        self.dispatchers.start()

    def _run_ready(self) -> None:
        worker = self.apis.worker()
        claims = worker.take(CLAIMED).claims
        while claims:
            settlements = [self._end(claim) for claim in claims]
            claims = worker.take(CLAIMED, settle=settlements).claims

    def _end(self, claim: Claim) -> Any:
        job = claim.job
        assert job is not None
        assert job.occurrence is not None
        assert job.occurrence.moment_us is not None
        if claim.is_dropped:
            return settlement(claim, Action.ACKNOWLEDGE, value="", run_outcome=RunOutcome.SKIPPED)
        if job.expiry is not None and job.expiry.moment_us <= self.now_us:
            return settlement(claim, Action.ACKNOWLEDGE, value="", run_outcome=RunOutcome.EXPIRED)
        self.ran[job.occurrence.schedule, job.occurrence.moment_us] += 1
        return settlement(claim, Action.ACKNOWLEDGE, value="")

    def _nothing_is_due(self) -> bool:
        keys, client = self.apis.keys, self.apis.client
        found = client.pipeline(transaction=True)
        found.zcount(keys.scheduled("default"), "-inf", self.now_us)
        found.zcount(keys("next_planting"), "-inf", self.now_us)
        for key in (keys.ready("default"), keys.recovered("default"), keys.parked("default"), keys("leases")):
            found.zcard(key)
        return not any(found.execute())

    def check(self) -> int:
        """Compare what ran with what was expected; return the number of occurrences."""
        total, wrong = 0, list[str]()
        for name, known in self.known.items():
            occurrences = known.expected()
            total += len(occurrences)
            counts = {each: self.ran.pop((name, each), 0) for each in occurrences}
            schedule = known.definition.schedule
            for began_us, ended_us in self.outages:
                missed = [each for each in occurrences if began_us < each <= ended_us]
                if missed and schedule.catch_up != "all":
                    found = [each for each in missed for _ in range(counts.pop(each))]
                    late = ended_us - missed[-1]
                    after = known.definition.schedule.next_after(missed[-1])
                    window = schedule.expires_after_us(missed[-1], after)
                    ran = schedule.catch_up == "last" or (window is not None and late < window)
                    if len(found) != ran or (schedule.catch_up == "none" and found != missed[-1:] * ran):
                        wrong.append(f"{name} {known.fields} {schedule.catch_up}: {_texts(found)} of {_texts(missed)}")
            wrong += [
                f"{name} {known.fields} in {known.zone}: {count} jobs of {_texts([each])}"
                for each, count in counts.items()
                if count != 1
            ]
        assert not wrong, "\n".join(wrong[:20])
        assert not self.ran, "jobs of no occurrence"
        return total


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us // SECOND_US, UTC)


def _texts(occurrences: list[int]) -> list[str]:
    return [_moment(each).isoformat() for each in occurrences]


def week_around(change: str) -> tuple[int, int]:
    """Return the week around a moment."""
    middle = round(datetime.fromisoformat(change).timestamp()) * SECOND_US
    return middle - 7 * DAY_US // 2, middle + 7 * DAY_US // 2


def run(turned: TurnedTime, *, end_us: int, fine: list[tuple[int, int]], outages: int, kill: float) -> None:
    """Turn the clock to the end: by minutes in the fine spans, by hours otherwise."""
    start_us = turned.now_us
    begins = sorted(turned.random.randrange(start_us, end_us) for _ in range(outages))
    turned.store()
    turned.dispatchers.start()
    try:
        turned.turn_to(start_us, kill=0)
        while turned.now_us < end_us:
            is_fine = any(first <= turned.now_us <= last for first, last in fine)
            # In the fine spans the next job is planted by one turn, and due at the next.
            step = (30 * SECOND_US if turned.now_us % (5 * MINUTE_US) == 0 else 270 * SECOND_US) if is_fine else HOUR_US
            begin = min((first for first, _ in fine if first > turned.now_us), default=end_us)
            turned.turn_to(min(end_us, begin, turned.now_us + step), kill=kill)
            if begins and begins[0] <= turned.now_us:
                begins.pop(0)
                length = turned.random.randrange(MINUTE_US, LONGEST_OUTAGE * HOUR_US)
                last_us = min(end_us, (turned.now_us + length) // (5 * MINUTE_US) * (5 * MINUTE_US))
                if last_us > turned.now_us:
                    middle = (turned.now_us + last_us) // 2
                    turned.outage(last_us, steps=[middle])
                    turned.turn_to(last_us, kill=0)
        turned.turn_to(end_us + 2 * MINUTE_US, kill=0)
    finally:
        turned.dispatchers.kill_all()


def test_a_day_around_a_change(redis_url: str, client: Any, tmp_path: Path, seed: int) -> None:
    start = datetime(2026, 10, 24, 12, tzinfo=UTC)
    turned = TurnedTime(redis_url, tmp_path, start=start, seed=seed)
    start_us, end_us = turned.now_us, turned.now_us + DAY_US
    for number, fields in enumerate(["*/5 * * * *", "0 * * * *", "30 2 * * *", "15 */3 * * *"] * 6):
        turned.add(fields, ZONES[number % len(ZONES)], start_us + 1, end_us)
    run(turned, end_us=end_us, fine=[(start_us, end_us)], outages=3, kill=0.05)
    assert turned.check() > 1_500
    assert turned.dispatchers.kills > 15


@pytest.mark.slow
def test_a_year_of_a_thousand_schedules(
    redis_url: str, client: Any, tmp_path: Path, seed: int, print_now: Callable[[str], None]
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    turned = TurnedTime(redis_url, tmp_path, start=start, seed=seed)
    start_us, end_us = turned.now_us, turned.now_us + 365 * DAY_US
    weeks = [week_around("2026-03-29T01:00+00:00"), week_around("2026-10-25T01:00+00:00")]
    for number in range(1_000):
        zone = ZONES[number % len(ZONES)]
        minute, hour, week = number * 7 % 60, number * 5 % 24, weeks[number % 2]
        if number < 90:
            turned.add("*/5 * * * *", zone, *week)
        elif number < 350:
            turned.add(f"{minute} * * * *", zone, *week)
        elif number < 790:
            turned.add(f"{minute} {hour} * * *", zone, start_us + 1, end_us)
        elif number < 920:
            turned.add(f"{minute} {hour} * * {number % 7}", zone, start_us + 1, end_us)
        else:
            turned.add(f"{minute} {hour} {number % 28 + 1} * *", zone, start_us + 1, end_us)
    run(turned, end_us=end_us, fine=weeks, outages=20, kill=0.02)
    total = turned.check()
    print_now(f"{total:,} occurrences, {turned.dispatchers.kills:,} dispatchers killed, {len(turned.outages)} outages")
    assert 300_000 < total <= 500_000
