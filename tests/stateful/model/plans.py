"""Plans: which occurrences of an interval get a job, when these are due, and when the next ones are planted."""

from hashlib import blake2b

from django_delayq.clock import DAY_US, HOUR_US, SECOND_US
from django_delayq.recurring.rule import Every
from django_delayq.recurring.schedule import Schedule

#: Most jobs of one plan.
MOST = 50


class Rhythm:
    """The occurrences of a schedule with an interval, by its options alone."""

    def __init__(self, schedule: Schedule) -> None:
        self.options = schedule
        assert isinstance(schedule.rule, Every)
        self.every_us = schedule.rule.least_distance_us

    def after(self, moment_us: int) -> int | None:
        """Return the first occurrence after a moment: intervals count from 1970."""
        found = (moment_us // self.every_us + 1) * self.every_us
        return None if self.options.end_us is not None and found > self.options.end_us else found

    def missed(self, after_us: int, until_us: int) -> list[int]:
        """Return the occurrences after one moment and until another one: the last one, or with "all" the first ones."""
        last_us = until_us if self.options.end_us is None else min(until_us, self.options.end_us)
        found = range((after_us // self.every_us + 1) * self.every_us, last_us + 1, self.every_us)
        return list(found[:MOST] if self.options.catch_up == "all" else found[-1:])

    def due_us(self, occurrence: int) -> int:
        return occurrence + int(self._share("jitter") * self.options.jitter_us)

    def planted_after(self, occurrence: int) -> int | None:
        """Return when the job after this one is planted; None: there is none."""
        if self.after(occurrence) is None:
            return None
        return self.due_us(occurrence) + int(self._share("planting") * self.every_us / 10)

    def expires_us(self, occurrence: int) -> int | None:
        """Return until when the job of an occurrence may begin; None: it never expires."""
        if self.options.catch_up != "none":
            return None
        # After a change it may be no occurrence, but the moment of the change.
        following = self.after(occurrence)
        usual_us = HOUR_US if following is None else min(HOUR_US, following - occurrence)
        return self.due_us(occurrence) + (self.options.window_us or usual_us)

    def has_expired(self, occurrence: int, at_us: int) -> bool:
        expires_us = self.expires_us(occurrence)
        return expires_us is not None and expires_us <= at_us

    def plan(
        self, last_us: int, last_start_us: int, *, is_waiting: bool, is_running: bool, now_us: int
    ) -> tuple[list[int], int | None]:
        """Return the occurrences that get a job now, and when the next ones do.

        The job of `last_us` may wait, and one before it may run.
        """
        catch_up = self.options.catch_up
        if self.after(last_us) is None:
            return [], None
        if is_waiting and self.due_us(last_us) > now_us:
            return [], self.planted_after(last_us)
        if is_waiting and catch_up == "last" and not is_running:
            return [], self._look_again(now_us)
        if is_waiting and catch_up == "none":
            return [], self._look_again(now_us) or now_us + 60 * SECOND_US
        began_late = is_running and self.has_expired(last_us, last_start_us)
        if began_late and now_us - last_start_us < 60 * SECOND_US:
            # Its worker is about to end it.
            return [], now_us + SECOND_US
        since_us = last_us
        if catch_up == "all":
            since_us = max(last_us, now_us - (self.options.window_us or DAY_US))
        chosen = self.missed(since_us, now_us)
        if chosen and catch_up != "all":
            ran = last_start_us >= self.due_us(chosen[0]) and not self.has_expired(last_us, last_start_us)
            if is_waiting or ran or self.has_expired(chosen[0], now_us):
                chosen = []
        if not chosen and (ahead := self.after(max(last_us, now_us))):
            chosen = [ahead]
        return chosen, self.planted_after(chosen[-1]) if chosen else None

    def _look_again(self, now_us: int) -> int | None:
        """Return half the way to the next due time, and at last that."""
        late_us = self.due_us(0)
        ahead = self.after(now_us - late_us)
        if ahead is None:
            return None
        left_us = ahead + late_us - now_us
        return now_us + (left_us // 2 if left_us >= 2 * SECOND_US else left_us)

    def _share(self, of: str) -> float:
        """Return the place of a schedule among others with its rule, by its name: from 0 to 1."""
        digest = blake2b(self.options.name.encode(), digest_size=6, person=of.encode()).digest()
        return int.from_bytes(digest) / 2**48
