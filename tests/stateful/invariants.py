"""Invariants: statements about all keys in Redis that hold after every step."""

from collections import Counter
from typing import Any

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import decode_head
from django_delayq.job.security.error_group_record import GROUP_SIZE
from django_delayq.store.digests import queue_hash
from django_delayq.store.keys import Keys, decode_queue
from tests.stateful.model.model import Model
from tests.stateful.model.values import Place
from tests.stateful.redis_state import expected_state, group_of, noun_of, plain

#: The places of a job, and the key that holds its records meanwhile.
PLACES = dict.fromkeys(("scheduled", "ready", "recovered", "parked", "leases"), "jobs") | {
    "dead_letters": "dead_bodies"
}
#: The kinds of entries in `limit_jobs`; the layout is in `_limits.lua`.
PARKED, LET_IN, SLOT = b"\0", b"\1", b"\2"


def check(model: Model, picture: dict[str, Any], keys: Keys) -> None:
    """Check all invariants."""
    check_each_job_is_in_one_place(picture, keys)
    check_nothing_is_early(model, picture, keys)
    check_redis_equals_the_model(model, picture, keys)
    check_attempts_are_counted(model)
    check_work_is_announced(model, picture, keys)
    check_the_next_promotion_is_in_time(model, picture, keys)
    check_limits(picture, keys)
    check_error_groups(model, picture, keys)


def check_redis_equals_the_model(model: Model, picture: dict[str, Any], keys: Keys) -> None:
    """Every key and value."""
    found, expected = plain(picture, keys), expected_state(model, keys)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            holds, must_hold = different(found.get(name), expected.get(name))
            raise AssertionError(f"{name}\n  holds     {holds!r}\n  must hold {must_hold!r}")


def different(found: Any, expected: Any) -> tuple[Any, Any]:
    """Return both values, of hashes and sorted sets only the entries that differ."""
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return found, expected
    entries = {entry for entry in found.keys() | expected.keys() if found.get(entry) != expected.get(entry)}
    return tuple({entry: each[entry] for entry in sorted(entries & each.keys())} for each in (found, expected))


def check_each_job_is_in_one_place(picture: dict[str, Any], keys: Keys) -> None:
    """A job with a body is in exactly one place, and a job in a place has a body."""
    places: dict[str, Counter[bytes]] = {"jobs": Counter(), "dead_bodies": Counter()}
    for name, value in picture.items():
        if (noun := noun_of(name, keys)) in PLACES:
            places[PLACES[noun]].update(member[:12] for member in value)
    for noun, found in places.items():
        bodies = picture.get(keys(noun), {})
        assert found == Counter(bodies.keys()), f"{noun} has {sorted(bodies)}, the places have {found}"
    leased = {lease[:12] for lease in picture.get(keys("leases"), {})}
    assert leased == set(picture.get(keys("claim_records"), {})), "running differs from leases"


def check_nothing_is_early(model: Model, picture: dict[str, Any], keys: Keys) -> None:
    """A ready or claimed job was due, but for a claim that a person made before."""
    for job in model.jobs.values():
        places = [keys.ready(job.queue), keys.recovered(job.queue), keys.parked(job.queue)]
        if job.ahead_us is None:
            places.append(keys("leases"))
        taken = any({job.member, job.lease} & set(picture.get(place, {})) for place in places)
        assert not taken or job.due_us <= model.now, f"{job} was promoted early, at {model.now}"


def check_error_groups(model: Model, picture: dict[str, Any], keys: Keys) -> None:
    """The group of each dead letter has its label, and the times of the first and the last one."""
    records = picture.get(keys("error_groups"), {})
    for job in model.at(Place.DEAD):
        group = group_of(job)
        record = records[group[:GROUP_SIZE]]
        assert record[16:] == group[GROUP_SIZE:], f"{job} has the group {record}"
        assert int.from_bytes(record[:8]) <= job.score <= int.from_bytes(record[8:16]), f"{job} died outside {record}"


def check_attempts_are_counted(model: Model) -> None:
    """The record counts the ended attempts, and the running one is within the policy."""
    for job in model.jobs.values():
        attempts = AttemptHistory.unpack(job.record)
        found = (attempts.ended, attempts.crash_suspected, attempts.snoozes, attempts.interruptions)
        expected = (job.ended, job.crash_suspected, job.snoozes, job.interruptions)
        assert found == expected, f"{job} has the record {attempts}"
        running = job.place is not Place.DEAD
        assert job.ended + running <= job.max_attempts, f"{job} is tried more often than its policy says"
        assert decode_head(job.body).member(job.raw_id) == job.member
        assert decode_head(job.body).queue == job.queue


def check_work_is_announced(model: Model, picture: dict[str, Any], keys: Keys) -> None:
    """If a job is ready, a notification is there, or a notified worker has not sent an exchange yet.

    For recovered jobs it is enough that a reply announced them: that worker claims again when it has a process.
    """
    for name, value in picture.items():
        if noun_of(name, keys) in ("notify", "notify_dispatcher"):
            assert value == 1, f"{name} has {value} elements"
    for job in (*model.at(Place.READY), *model.at(Place.RECOVERED)):
        if not model.is_served(job):
            continue
        known = model.notified | (model.promised if job.place is Place.RECOVERED else set())
        assert keys.notify(job.queue) in picture or job.queue in known, f"nobody knows of {job}"
        known_to_all = model.notified_all or (job.place is Place.RECOVERED and job.queue in model.promised)
        assert keys("notify") in picture or known_to_all, f"no worker of all queues knows of {job}"


def check_the_next_promotion_is_in_time(model: Model, picture: dict[str, Any], keys: Keys) -> None:
    """The dispatcher promotes before anything is due, or is notified, or was and has not promoted yet."""
    if keys("notify_dispatcher") in picture or model.alarm_heard:
        return
    for job in model.at(Place.SCHEDULED):
        latest = max(job.score, model.promoted_at)
        assert model.next_promotion is not None and model.next_promotion <= latest, f"the dispatcher oversleeps {job}"
    for limit, moment in model.limits.open.items():
        latest = max(moment, model.promoted_at)
        assert model.next_promotion is not None and model.next_promotion <= latest, f"it oversleeps the limit {limit!r}"
    for id, schedule in model.schedules.items():
        # If its caller died before it planted, it is returned again by the next promotion.
        if schedule.next_us is not None and not schedule.is_named:
            latest = max(schedule.next_us, model.promoted_at)
            assert model.next_promotion is not None and model.next_promotion <= latest, f"it oversleeps {id!r}"
    for job in model.at(Place.CLAIMED):
        # A lease that had expired at the last promotion was returned to the dispatcher.
        expected = job.score <= model.expired_by
        latest = max(job.score, model.no_reclaim_before)
        assert model.next_promotion is None or expected or model.next_promotion <= latest, (
            f"the dispatcher oversleeps {job}"
        )


def check_limits(picture: dict[str, Any], keys: Keys) -> None:
    """Check all invariants of limits."""
    entries = list(picture.get(keys("limit_jobs"), {}))
    check_slots_go_with_leases([entry for entry in entries if entry[:1] == SLOT], picture, keys)
    parked = [entry for entry in entries if entry[:1] == PARKED]
    check_parked_jobs_have_their_entries(parked, picture, keys)
    check_let_in_jobs_are_ready([entry for entry in entries if entry[:1] == LET_IN], picture, keys)
    unseen = {entry[1:13] for entry in parked} - picture.get(keys("next_let_in"), {}).keys()
    assert not unseen, f"the dispatcher does not look at {unseen}"


def check_slots_go_with_leases(entries: list[bytes], picture: dict[str, Any], keys: Keys) -> None:
    """Each slot is of a live lease, whose record names it, or of code outside a job that has it for some time."""
    records, leases = picture.get(keys("claim_limits"), {}), picture.get(keys("leases"), {})
    expected = list(picture.get(keys("outside_slots"), {}))
    for lease in leases:
        held = records.get(lease[:12], b"")
        expected += [held[at : at + 12] + lease for at in range(0, len(held), 14)]
    assert Counter(entry[1:] for entry in entries) == Counter(expected)
    assert records.keys() <= {lease[:12] for lease in leases}


def check_parked_jobs_have_their_entries(entries: list[bytes], picture: dict[str, Any], keys: Keys) -> None:
    """A parked job has one entry, which names the limit that it waits for, its queue and its rank; nothing else has."""
    waiting_for, places = picture.get(keys("waiting_for"), {}), dict[tuple[bytes, bytes, int], bytes]()
    prefix = keys.parked("")
    for name, members in picture.items():
        if name.startswith(prefix):
            queue = name.removeprefix(prefix).encode()
            places |= {(member, queue, rank): waiting_for.get(member[:12], b"") for member, rank in members.items()}
    found = {
        (entry[35:49], entry[51:], int.from_bytes(entry[27:35])): entry[1:13]
        for entry in entries
        if entry[13:19] == queue_hash(decode_queue(entry[51:]))
    }
    assert len(entries) == len(found) and found == places
    assert len(waiting_for) == len(places)


def check_let_in_jobs_are_ready(entries: list[bytes], picture: dict[str, Any], keys: Keys) -> None:
    """A job that was let in waits for a worker; a job is let in by one limit."""
    ready = set[tuple[bytes, bytes]]()
    for name, members in picture.items():
        for prefix in (keys.ready(""), keys.recovered("")):
            if name.startswith(prefix):
                hashed = queue_hash(decode_queue(name.removeprefix(prefix).encode()))
                ready |= {(hashed, member) for member in members}
    found = [(entry[13:19], entry[27:41]) for entry in entries]
    assert set(found) <= ready and len(set(found)) == len(found)
