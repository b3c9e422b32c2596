"""Plan: which occurrences of a schedule get a job now, and when the next one does."""

from itertools import islice
from typing import NamedTuple

from django_delayq.clock import SECOND_US
from django_delayq.recurring.rule import occurrences
from django_delayq.recurring.schedule import Schedule

#: Most occurrences of one plan.
BATCH = 50
#: Within how many µs a worker ends a job that it took too late.
_EXPIRES_WITHIN_US = 60 * SECOND_US


class Plan(NamedTuple):
    """The next jobs of a schedule."""

    #: The occurrences that get a job now; more than one only with `catch_up="all"`.
    occurrences: list[int]
    #: When there is a plan again, µs since the epoch; None: the schedule has no further occurrence.
    next_planting_us: int | None


def make_plan(
    schedule: Schedule,
    *,
    last_us: int,
    last_start_us: int,
    is_waiting: bool,
    now_us: int,
    is_running: bool = False,
) -> Plan:
    """Return the plan of a schedule after its occurrence `last_us`, or after the moment at which it was set.

    `last_start_us` is when its last job began. `is_waiting`: the job of `last_us` has not begun; `is_running`: one
    before it has not ended. Moments are µs since the epoch. An occurrence that nobody planted in time gets a job as
    `catch_up` says, but not if a job that begins after it, or began after it, stands for it. Unless `catch_up` is
    "all", one job at most waits for a worker, and stands for the occurrences that pass meanwhile. With "last", that is
    up to `overlap` while another one runs.
    """
    first = schedule.next_after(last_us)
    if first is None:
        return Plan([], None)
    if is_waiting and schedule.due_us(last_us) > now_us:
        # Another dispatcher has planted since the promotion that named the schedule.
        return Plan([], schedule.planted_us(last_us, first))
    if is_waiting and not is_running and schedule.catch_up == "last":
        return Plan([], _look_again_us(schedule, now_us=now_us))
    if schedule.catch_up == "none":
        # A worker that claims an expired job and the next one together skips the next one, because `overlap` counts the
        # expired job as running. So the next one is planted after the expired job has ended.
        if is_waiting:
            # Also of a schedule without a further occurrence: the last one may still have its job.
            return Plan([], _look_again_us(schedule, now_us=now_us) or now_us + _EXPIRES_WITHIN_US)
        began_late = is_running and _has_expired(schedule, last_us, now_us=last_start_us)
        if began_late and now_us - last_start_us < _EXPIRES_WITHIN_US:
            return Plan([], now_us + SECOND_US)
    if first > now_us:
        return _plan_of(schedule, [first])
    if schedule.catch_up == "all":
        start_us = max(last_us, now_us - schedule.catch_up_window_us)
        missed = list(islice(occurrences(schedule, after_us=start_us, until_us=now_us), BATCH))
        if missed:
            return _plan_of(schedule, missed)
    else:
        latest = latest_occurrence(schedule, first_us=first, now_us=now_us)
        # A job that a worker took after it had expired stands for nothing.
        ran = last_start_us >= schedule.due_us(latest) and not _has_expired(schedule, last_us, now_us=last_start_us)
        if not is_waiting and not ran and not _has_expired(schedule, latest, now_us=now_us):
            return _plan_of(schedule, [latest])
    ahead = schedule.next_after(now_us)
    return Plan([], None) if ahead is None else _plan_of(schedule, [ahead])


def latest_occurrence(schedule: Schedule, *, first_us: int, now_us: int) -> int:
    """Return the last occurrence that is not after now, if `first_us` is one of them. Mostly two searches, else 30."""
    after = schedule.next_after(first_us)
    if after is None or after > now_us:
        return first_us
    # Most rules have nearly equal distances, so that one of them before now is the last occurrence, or one before it.
    distance = after - first_us
    while (latest := schedule.next_after(now_us - distance)) is None or latest > now_us:
        distance *= 2
    following, high = schedule.next_after(latest), now_us
    if following is None or following > now_us:
        return latest
    while high - latest >= SECOND_US:
        middle = (latest + high) // 2
        found = schedule.next_after(middle)
        if found is None or found > now_us:
            high = middle
        else:
            latest = found
    return latest


def _has_expired(schedule: Schedule, occurrence: int, *, now_us: int) -> bool:
    """Return whether the job of an occurrence may not begin any more."""
    expires_after_us = schedule.expires_after_us(occurrence, schedule.next_after(occurrence))
    return expires_after_us is not None and schedule.due_us(occurrence) + expires_after_us <= now_us


def _look_again_us(schedule: Schedule, *, now_us: int) -> int | None:
    """Return when to look whether the waiting job has begun: some times before the next occurrence is due, and then."""
    late_us = schedule.due_us(now_us) - now_us
    ahead = schedule.next_after(now_us - late_us)
    if ahead is None:
        return None
    left_us = ahead + late_us - now_us
    return now_us + (left_us if left_us < 2 * SECOND_US else left_us // 2)


def _plan_of(schedule: Schedule, chosen: list[int]) -> Plan:
    """Return the plan by which these occurrences get jobs now."""
    after = schedule.next_after(chosen[-1])
    return Plan(chosen, None if after is None else schedule.planted_us(chosen[-1], after))
