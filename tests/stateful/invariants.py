"""Invariants: what must be true of all of Redis after every step."""

from collections import Counter
from typing import Any

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.codec import decode_head
from django_delayq.store.keys import Keys
from tests.stateful.model import Model
from tests.stateful.redis_state import comparable_state, expected_state, noun_of
from tests.stateful.values import Place

#: Places of a job, and the key that holds its body meanwhile.
PLACES = dict.fromkeys(("scheduled", "ready", "recovered", "leases"), "jobs") | {"dead_letters": "dead_bodies"}


def check(model: Model, state: dict[str, Any], keys: Keys) -> None:
    """Check all invariants."""
    check_each_job_is_in_one_place(state, keys)
    check_nothing_is_early(model, state, keys)
    check_redis_equals_the_model(model, state, keys)
    check_attempts_are_counted(model)
    check_waiting_work_is_notified(model, state, keys)
    check_the_next_promotion_is_in_time(model, state, keys)


def check_redis_equals_the_model(model: Model, state: dict[str, Any], keys: Keys) -> None:
    """Compare each key separately, because nobody can read a difference of two large dicts."""
    found, expected = comparable_state(state, keys), expected_state(model, keys)
    for name in sorted(found.keys() | expected.keys()):
        assert found.get(name) == expected.get(name), (
            f"{name}\n  holds     {found.get(name)!r}\n  must hold {expected.get(name)!r}"
        )


def check_each_job_is_in_one_place(state: dict[str, Any], keys: Keys) -> None:
    """Check that each job with a body is in exactly one place, and that each job in a place has a body."""
    places: dict[str, Counter[bytes]] = {"jobs": Counter(), "dead_bodies": Counter()}
    for name, value in state.items():
        if (noun := noun_of(name, keys)) in PLACES:
            places[PLACES[noun]].update(member[:12] for member in value)
    for noun, found in places.items():
        bodies = state.get(keys(noun), {})
        assert found == Counter(bodies.keys()), f"{noun} has {sorted(bodies)}, the places have {found}"
    leased = {lease[:12] for lease in state.get(keys("leases"), {})}
    assert leased == set(state.get(keys("claim_records"), {})), "running differs from leases"


def check_nothing_is_early(model: Model, state: dict[str, Any], keys: Keys) -> None:
    """Check that each ready or claimed job was due."""
    for job in model.jobs.values():
        places = (keys.ready(job.queue), keys.recovered(job.queue), keys("leases"))
        taken = any({job.member, job.lease} & set(state.get(place, {})) for place in places)
        assert not taken or job.due_us <= model.now, f"{job} was promoted early, at {model.now}"


def check_attempts_are_counted(model: Model) -> None:
    """Check that the record has all ended attempts, and that the running one is within the policy."""
    for job in model.jobs.values():
        attempts = AttemptHistory.unpack(job.record)
        assert (attempts.ended, attempts.crash_suspected) == (job.ended, job.crash_suspected), (
            f"{job} has the record {attempts}"
        )
        running = job.place is not Place.DEAD
        assert job.ended + running <= job.max_attempts, f"{job} is tried more often than its policy says"
        assert decode_head(job.body).member(job.raw_id) == job.member
        assert decode_head(job.body).queue == job.queue


def check_waiting_work_is_notified(model: Model, state: dict[str, Any], keys: Keys) -> None:
    """Check that a notification is pending for each ready job, or that its receiver has not claimed yet.

    For recovered jobs it is enough that a worker knows of them: it claims again when it has a free process.
    """
    for name, value in state.items():
        if noun_of(name, keys) in ("notify", "notify_dispatcher"):
            assert value == 1, f"{name} holds {value} notifications"
    for job in (*model.at(Place.READY), *model.at(Place.RECOVERED)):
        if job.queue in model.paused:
            continue
        known = model.notified | (model.recovery_reported if job.place is Place.RECOVERED else set())
        assert keys.notify(job.queue) in state or job.queue in known, f"no notification is pending for {job}"
        known_to_all = model.all_queues_notified or (
            job.place is Place.RECOVERED and job.queue in model.recovery_reported
        )
        assert keys("notify") in state or known_to_all, f"no notification of all queues is pending for {job}"


def check_the_next_promotion_is_in_time(model: Model, state: dict[str, Any], keys: Keys) -> None:
    """Check that the dispatcher wakes up in time, is notified, or has not promoted since its notification."""
    if keys("notify_dispatcher") in state or model.dispatcher_notified:
        return
    for job in model.at(Place.SCHEDULED):
        latest = max(job.score, model.promoted_at)
        assert model.wake_at is not None and model.wake_at <= latest, f"the dispatcher oversleeps {job}"
    for job in model.at(Place.CLAIMED):
        # The last promotion has returned the leases that had expired by then.
        returned = job.score <= model.expired_by
        latest = max(job.score, model.no_reclaim_before)
        assert model.wake_at is None or returned or model.wake_at <= latest, f"the dispatcher oversleeps {job}"
