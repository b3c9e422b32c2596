"""Reclaim: the decision on an expired lease is applied if it is the same lease and still expired."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import BadBody, JobCrashed, NewerBody
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.processes.emitter import emit_now
from django_delayq.store.nodes.connection_cache import PendingReply
from django_delayq.store.promotion import ExpiredLease, Promotion, Reclaim
from django_delayq.store.routing.route import Route
from tests.shard_apis import DAY, HOUR, SECOND, START, OneWorker, ShardApis, one_more

LEASE = 30 * SECOND


def claimed(apis: ShardApis, **options: object) -> tuple[OneWorker, Claim]:
    """Add a job and claim it."""
    apis.add(**options)
    worker = apis.worker()
    return worker, worker.take().claims[0]


def expired_leases(apis: ShardApis, *leases: bytes) -> list[ExpiredLease]:
    """Let the leases expire and read them as a dispatcher does."""
    apis.clock.advance(LEASE)
    assert sorted(apis.promote().expired_leases) == sorted(leases)
    return apis.promotion.read_expired_leases(leases)


def decided(item: ExpiredLease, *, dead: bool = False, delay_us: int = 0) -> Reclaim:
    """Return a decision with the attempt counted as a crash."""
    attempts = one_more(item.attempts, suspect=not dead, error="expired")
    return Reclaim(lease=item.lease, attempts=attempts, queue=None if dead else item.queue, delay_us=delay_us)


def test_an_expired_lease_is_read_with_what_is_needed_to_judge_it(apis: ShardApis) -> None:
    raw_id = apis.add("argument", queue="mail")
    worker = apis.worker()
    (claim,) = worker.take(1, "mail", description="host/9").claims
    (item,) = expired_leases(apis, claim.lease)
    assert (item.lease[:12], item.queue, item.worker, item.claimed_us) == (raw_id, "mail", "host/9", START)
    assert item.job == claim.job


@pytest.mark.parametrize("delay", [1, SECOND, 365 * DAY])
def test_a_reclaimed_job_waits_again_with_its_attempt_counted(apis: ShardApis, delay: int) -> None:
    _, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    assert sum(apis.promotion.reclaim([decided(item, delay_us=delay)])) == 1
    assert apis.scheduled() == {claim.raw_id: START + LEASE + delay}
    assert apis.where(claim.raw_id) == ["scheduled:default"]
    apis.clock.advance(delay)
    apis.promote()
    (again,) = apis.worker().take().claims
    assert (again.attempt, again.attempts.crash_suspected, again.attempts.last_error) == (2, True, "expired")


@pytest.mark.parametrize(("suspect", "place"), [(True, "recovered:default"), (False, "ready:default")])
def test_a_reclaimed_job_waits_at_its_old_rank(apis: ShardApis, suspect: bool, place: str) -> None:
    """Otherwise the first job of a backlog would be the last after one crash."""
    _, claim = claimed(apis, priority=3, due=START - DAY)
    behind = apis.add(priority=3, due=START - 1)
    (item,) = expired_leases(apis, claim.lease)
    attempts = one_more(item.attempts, suspect=suspect)
    apis.promotion.reclaim([Reclaim(lease=item.lease, attempts=attempts, queue=item.queue)])
    assert apis.where(claim.raw_id) == [place]
    worker = apis.worker()
    assert [worker.take().claims[0].raw_id for _ in range(2)] == [claim.raw_id, behind]


def test_a_reclaimed_job_whose_rank_is_lost_waits_as_if_it_was_due_now(apis: ShardApis) -> None:
    _, claim = claimed(apis, priority=3)
    (item,) = expired_leases(apis, claim.lease)
    apis.client.hset(apis.keys("claim_records"), claim.raw_id, b"\0" * 33)
    apis.promotion.reclaim([decided(item)])
    now = apis.add(priority=3)
    assert apis.recovered()[claim.raw_id] == apis.ready()[now]


def test_a_reclaimed_job_without_attempts_left_is_dead(apis: ShardApis) -> None:
    _, claim = claimed(apis, key="k")
    (item,) = expired_leases(apis, claim.lease)
    assert sum(apis.promotion.reclaim([decided(item, dead=True)])) == 1
    assert apis.traces(claim.raw_id) == ["dead_bodies", "dead_letters", "groups_of_dead"]
    letter = apis.inspection.dead_letter(claim.raw_id)
    assert letter is not None
    assert (letter.moment_us, letter.attempts.last_error) == (START + LEASE, "expired")


def test_a_lease_expires_at_its_end_and_not_a_microsecond_before(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    apis.clock.advance(-1)
    assert sum(apis.promotion.reclaim([decided(item)])) == 0
    assert apis.where(claim.raw_id) == ["leases"]
    apis.clock.advance(1)
    assert sum(apis.promotion.reclaim([decided(item)])) == 1


def test_lease_revived_by_a_late_heartbeat_is_left_alone(apis: ShardApis) -> None:
    worker, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    worker.api.heartbeat([claim.lease])
    assert sum(apis.promotion.reclaim([decided(item)])) == 0
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost
    assert apis.traces(claim.raw_id) == []


@pytest.mark.parametrize("outcome", list(Action))
@pytest.mark.parametrize("dead", [False, True])
def test_job_settled_meanwhile_is_left_where_it_is(apis: ShardApis, outcome: Action, dead: bool) -> None:
    worker, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    worker.settle(claim, outcome, delay=HOUR)
    places = apis.where(claim.raw_id)
    assert sum(apis.promotion.reclaim([decided(item, dead=dead)])) == 0
    assert apis.where(claim.raw_id) == places


def test_second_dispatcher_reclaims_nothing_twice(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    assert sum(apis.promotion.reclaim([decided(item), decided(item, dead=True)])) == 1
    assert sum(apis.promotion.reclaim([decided(item, dead=True)])) == 0
    assert apis.where(claim.raw_id) == ["recovered:default"]


def test_later_lease_of_the_same_job_is_not_taken_for_the_expired_one(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    apis.promotion.reclaim([decided(item)])
    apis.promote()
    apis.worker().take()
    apis.clock.advance(HOUR)
    assert sum(apis.promotion.reclaim([decided(item)])) == 0
    assert apis.where(claim.raw_id) == ["leases"]


def test_jobs_of_a_batch_return_to_their_queues(apis: ShardApis) -> None:
    made = {apis.add(queue=queue): queue for queue in ("a", "b", "c", "a")}
    claims = apis.worker().take(4, "c", "a", "b").claims
    items = expired_leases(apis, *(claim.lease for claim in claims))
    assert sum(apis.promotion.reclaim([decided(item) for item in items])) == 4
    assert {raw_id: apis.where(raw_id) for raw_id in made} == {
        raw_id: [f"recovered:{queue}"] for raw_id, queue in made.items()
    }


def test_batch_of_500_is_reclaimed_in_one_step(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(key=f"{number}") for number in range(500)])
    worker = apis.worker()
    claims = [claim for _ in range(10) for claim in worker.take(50).claims]
    items = expired_leases(apis, *(claim.lease for claim in claims))
    assert sum(apis.promotion.reclaim([decided(item, dead=n % 2 == 0) for n, item in enumerate(items)])) == 500
    counts = apis.inspection.counts()
    assert (counts.dead, counts.ready, counts.scheduled) == (250, {"default": 250}, {"default": 0})
    assert apis.client.hlen(apis.keys("unique_keys")) == 250


@pytest.mark.parametrize(("delay", "notifications"), [(0, [0, 1]), (1, [1, 0])])
def test_reclaimed_job_keeps_its_key_and_notifies(apis: ShardApis, delay: int, notifications: list[int]) -> None:
    _, claim = claimed(apis, key="k")
    (item,) = expired_leases(apis, claim.lease)
    places = apis.keys("notify_dispatcher"), apis.keys.notify("default")
    apis.notifications(*places)
    apis.promotion.reclaim([decided(item, delay_us=delay)])
    assert apis.notifications(*places) == notifications
    assert apis.enqueue(apis.draft(key="k")).held == {0: claim.raw_id}


@pytest.mark.parametrize("body", [None, b"", b"\x01\x64\x00\xff", b"\x01\x64\x00\x01\xff\x00\x00"])
def test_unreadable_body_is_reported_and_can_be_dead_lettered(apis: ShardApis, body: bytes | None) -> None:
    _, claim = claimed(apis)
    apis.client.hdel(apis.keys("jobs"), claim.raw_id)
    if body is not None:
        apis.client.hset(apis.keys("jobs"), claim.raw_id, body)
    (item,) = expired_leases(apis, claim.lease)
    assert (item.job, item.queue, type(item.fault)) == (None, None, BadBody)
    assert sum(apis.promotion.reclaim([decided(item, dead=True)])) == 1
    assert apis.where(claim.raw_id) == ["dead_letters"]


def test_body_of_a_newer_version_still_shows_its_queue(apis: ShardApis) -> None:
    apis.add(queue="mail")
    (claim,) = apis.worker().take(1, "mail").claims
    body = apis.client.hget(apis.keys("jobs"), claim.raw_id)
    apis.client.hset(apis.keys("jobs"), claim.raw_id, b"\x07" + body[1:])
    (item,) = expired_leases(apis, claim.lease)
    assert (item.queue, type(item.fault)) == ("mail", NewerBody)
    apis.promotion.reclaim([decided(item, delay_us=30 * SECOND)])
    assert apis.scheduled("mail") == {claim.raw_id: START + LEASE + 30 * SECOND}


def test_a_lapsed_lease_of_a_newer_body_counts_and_is_left_to_newer_processes(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    body = apis.client.hget(apis.keys("jobs"), claim.raw_id)
    apis.client.hset(apis.keys("jobs"), claim.raw_id, b"\x07" + body[1:])
    # More than this process's own policy would allow.
    apis.client.hset(apis.keys("attempts"), claim.raw_id, AttemptHistory(ended=6).pack())
    apis.clock.advance(LEASE)
    Dispatcher(apis.shard, apis.promotion).promote()
    record = AttemptHistory.unpack(apis.client.hget(apis.keys("attempts"), claim.raw_id))
    assert (record.ended, record.history[-1]["ending"], record.waiting_for) == (7, "lease expired", "")
    assert apis.where(claim.raw_id) == ["recovered:default"]


@pytest.mark.parametrize(
    ("ended", "body", "level", "kind"),
    [
        (0, None, "WARNING", JobCrashed),
        (4, None, "ERROR", JobCrashed),
        (0, b"nonsense", "ERROR", BadBody),
        (0, b"\x07", "WARNING", JobCrashed),
    ],
    ids=["retried", "dead", "unreadable", "newer"],
)
def test_the_record_of_an_attempt_whose_lease_expired_has_an_exception(
    apis: ShardApis, ended: int, body: bytes | None, level: str, kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    _, claim = claimed(apis)
    apis.client.hset(apis.keys("attempts"), claim.raw_id, AttemptHistory(ended=ended).pack())
    if body is not None:
        stored = apis.client.hget(apis.keys("jobs"), claim.raw_id)
        apis.client.hset(apis.keys("jobs"), claim.raw_id, body if len(body) > 1 else body + stored[1:])
    apis.clock.advance(LEASE)
    Dispatcher(apis.shard, apis.promotion, emit=emit_now).promote()
    # One of them, so that a tracker of errors counts the attempt once.
    [record] = [each for each in caplog.records if each.exc_info]
    assert record.exc_info
    assert (record.levelname, type(record.exc_info[1])) == (level, kind)
    assert ("body is damaged" if kind is BadBody else "its lease expired") in str(record.exc_info[1])
    assert (vars(record)["job_id"], vars(record)["attempt"]) == (claim.id, ended + 1)


def test_a_lost_claim_record_does_not_stop_reclaim(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    apis.client.delete(apis.keys("claim_records"), apis.keys("worker_names"))
    (item,) = expired_leases(apis, claim.lease)
    assert item.claimed_us == 0
    assert sum(apis.promotion.reclaim([decided(item)])) == 1


@pytest.mark.parametrize("flags", range(4))
def test_a_claim_record_of_another_token_does_not_stop_reclaim(apis: ShardApis, flags: int) -> None:
    """Scripts ignore what it says. If the caller took it for a stop, no decision would ever apply."""
    _, claim = claimed(apis)
    record = b"another token..." + bytes(16) + bytes((flags,)) + bytes(16)
    apis.client.hset(apis.keys("claim_records"), claim.raw_id, record)
    apis.clock.advance(LEASE)
    Dispatcher(apis.shard, apis.promotion).promote()
    assert apis.where(claim.raw_id) == ["recovered:default"]


def test_full_memory_does_not_stop_reclaim(own_apis: ShardApis) -> None:
    own_apis.enqueue(*[own_apis.draft(number) for number in range(2)])
    claims = own_apis.worker().take(2).claims
    own_apis.fill_memory()
    items = expired_leases(own_apis, *(claim.lease for claim in claims))
    assert sum(own_apis.promotion.reclaim([decided(items[0]), decided(items[1], dead=True)])) == 2
    assert own_apis.where(claims[0].raw_id) == ["recovered:default"]
    assert own_apis.where(claims[1].raw_id) == ["dead_letters"]


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    _, claim = claimed(apis)
    (item,) = expired_leases(apis, claim.lease)
    apis.client.script_flush()
    assert sum(apis.promotion.reclaim([decided(item)])) == 1


def test_large_bodies_are_read_and_judged_batch_by_batch(apis: ShardApis) -> None:
    text = "x" * 900_000
    for number in range(30):
        apis.add(text, key=f"{number}")
    worker = apis.worker()
    leases = [claim.lease for _ in range(30) for claim in worker.take(1).claims]
    small = [apis.add() for _ in range(20)]
    leases += [claim.lease for claim in worker.take(20).claims]
    sizes: list[int] = []

    class Measured(Route):
        """A route that notes the bytes of the replies to several commands."""

        def read_all(self, commands: Sequence[bytes], reply: PendingReply | None = None, **options: Any) -> Any:
            found = super().read_all(commands, reply, **options)
            if len(commands) > 1:
                sizes.append(sum(len(body) for row in found if isinstance(row, list) for body in row if body))
            return found

    apis.clock.advance(LEASE)
    shard = apis.over(Measured)
    Dispatcher(shard, Promotion(shard)).promote()
    # 27 MB of bodies, in replies of 8 MiB at most.
    assert sum(sizes) > 27_000_000
    assert max(sizes) < 8.5 * 1024 * 1024
    assert set(apis.recovered()) == {lease[:12] for lease in leases} >= set(small)


def test_batches_hold_every_lease_once_in_order(apis: ShardApis) -> None:
    for number in range(3):
        apis.add("x" * 5, number)
    leases = [claim.lease for claim in apis.worker().take(3).claims]
    assert list(apis.promotion.batches([])) == []
    assert list(apis.promotion.batches(leases)) == [leases]
    for lease in leases:
        apis.client.hset(apis.keys("jobs"), lease[:12], b"x" * 9 * 1024 * 1024)
    assert list(apis.promotion.batches(leases)) == [[lease] for lease in leases]
    apis.client.delete(apis.keys("jobs"))
    assert list(apis.promotion.batches(leases)) == [leases]


def blocking_claim(apis: ShardApis, **options: Any) -> tuple[OneWorker, Claim]:
    """Add a job and claim it as if behind a blocking pop."""
    apis.add(**options)
    worker = apis.worker()
    worker.take(0)
    return worker, worker.take(blocking=True).claims[0]


def confirm(apis: ShardApis, claim: Claim) -> None:
    assert apis.client.srem(apis.keys("unconfirmed"), claim.lease)


def uncounted(item: ExpiredLease) -> Reclaim:
    return Reclaim(lease=item.lease, attempts=replace(item.attempts, spared=True), queue=item.queue)


@pytest.mark.parametrize("confirmed", [True, False])
def test_an_expired_unconfirmed_claim_counts_no_attempt(
    apis: ShardApis, confirmed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="django_delayq")
    _, claim = blocking_claim(apis)
    if confirmed:
        confirm(apis, claim)
    apis.clock.advance(LEASE)
    Dispatcher(apis.shard, apis.promotion).promote()
    spared = [each for each in caplog.records if "did not confirm its claim" in each.getMessage()]
    assert [record.job_id for record in spared] == ([] if confirmed else [claim.id])  # type: ignore[attr-defined]
    place = apis.recovered() if confirmed else apis.ready()
    assert place == {claim.raw_id: claim.rank} and apis.where(claim.raw_id)
    assert not apis.client.exists(apis.keys("unconfirmed"))
    (again,) = apis.worker().take().claims
    assert (again.attempt, again.attempts.crash_suspected) == ((2, True) if confirmed else (1, False))


def test_the_second_unconfirmed_claim_in_a_row_counts_an_attempt(apis: ShardApis) -> None:
    worker, claim = blocking_claim(apis)
    for attempt in (1, 2):
        Dispatcher(apis.shard, apis.promotion)._reclaim(apis.expired_leases())
        (again,) = worker.take(blocking=True).claims
        assert again.attempt == attempt
    assert again.raw_id == claim.raw_id and again.attempts.crash_suspected and not again.attempts.spared


def test_a_renewed_claim_counts_even_if_its_confirmation_was_lost(apis: ShardApis) -> None:
    worker, claim = blocking_claim(apis)
    assert not worker.api.heartbeat([claim.lease]).lost
    assert not apis.client.exists(apis.keys("unconfirmed"))


def test_a_claim_that_is_confirmed_while_it_is_judged_is_judged_again(apis: ShardApis) -> None:
    _, claim = blocking_claim(apis)
    (item,) = expired_leases(apis, claim.lease)
    assert item.unconfirmed
    confirm(apis, claim)
    assert apis.promotion.reclaim([uncounted(item)]) == [False]
    (item,) = apis.promotion.read_expired_leases([claim.lease])
    assert not item.unconfirmed
    assert apis.promotion.reclaim([decided(item)]) == [True]


def test_a_crash_suspicion_survives_an_unconfirmed_claim(apis: ShardApis) -> None:
    worker, claim = blocking_claim(apis)
    confirm(apis, claim)
    worker.settle(claim, Action.RETRY, suspect=True, keeps_rank=True)
    (claim,) = worker.take(blocking=True).claims
    assert claim.attempts.crash_suspected
    (item,) = expired_leases(apis, claim.lease)
    assert apis.promotion.reclaim([uncounted(item)]) == [True]
    assert apis.where(claim.raw_id) == ["recovered:default"]
    (again,) = apis.worker().take().claims
    assert (again.attempt, again.attempts.crash_suspected) == (2, True)


def test_an_unreadable_job_with_an_unconfirmed_claim_is_a_dead_letter(apis: ShardApis) -> None:
    _, claim = blocking_claim(apis)
    apis.client.hset(apis.keys("jobs"), claim.raw_id, b"nonsense")
    apis.clock.advance(LEASE)
    Dispatcher(apis.shard, apis.promotion).promote()
    assert apis.where(claim.raw_id) == ["dead_letters"]
    assert not apis.client.exists(apis.keys("unconfirmed"))


@pytest.mark.parametrize("how", [Action.ACKNOWLEDGE, Action.RETRY, Action.RELEASE, Action.DEAD_LETTER])
def test_a_claim_that_is_settled_is_unconfirmed_no_longer(apis: ShardApis, how: Action) -> None:
    worker, claim = blocking_claim(apis)
    assert apis.client.sismember(apis.keys("unconfirmed"), claim.lease)
    worker.settle(claim, how)
    assert not apis.client.exists(apis.keys("unconfirmed"))
