"""Limits on the number of running jobs: who may begin, who waits, and who is let in."""

import pytest

from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action
from django_delayq.store.operations.limits import SlotReply
from tests.shard_apis import HOUR, MS, SECOND, ShardApis, ids, settlement

ONE, TWO = LimitUse("one"), LimitUse("two")


def test_no_more_jobs_run_than_the_limit_allows(apis: ShardApis) -> None:
    made = [apis.add(limits=[TWO]) for _ in range(5)]
    worker = apis.worker()
    claims = worker.take(10).claims
    assert ids(claims) == made[:2]
    assert list(apis.parked()) == made[2:]
    assert not apis.ready()
    assert not apis.let_in()


@pytest.mark.parametrize("how", [Action.ACKNOWLEDGE, Action.DEAD_LETTER, Action.RETRY, Action.RELEASE, Action.CANCEL])
def test_the_end_of_a_job_lets_the_next_one_in(apis: ShardApis, how: Action) -> None:
    first, second, _ = [apis.add(limits=[ONE]) for _ in range(3)]
    worker = apis.worker()
    (claim,) = worker.take(10).claims
    assert claim.raw_id == first
    apis.notifications(apis.keys("notify_dispatcher"))
    worker.settle(claim, how, delay=60 * SECOND)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]
    assert apis.let_in() == 1
    # A released job waits at its rank.
    assert ids(worker.take(10).claims) == [first if how is Action.RELEASE else second]


def test_a_value_is_a_limit_of_its_own(apis: ShardApis) -> None:
    made = {account: apis.add(limits=[LimitUse("one", account)]) for account in ("a", "b")}
    again = apis.add(limits=[LimitUse("one", "a")])
    worker = apis.worker()
    claims = worker.take(10).claims
    assert set(ids(claims)) == set(made.values())
    assert list(apis.parked()) == [again]
    (of_b,) = [claim for claim in claims if claim.raw_id == made["b"]]
    worker.settle(of_b, Action.ACKNOWLEDGE)
    assert not apis.let_in()


def test_several_limits_are_taken_all_or_none(apis: ShardApis) -> None:
    first, both = apis.add(limits=[ONE]), apis.add(limits=[TWO, ONE])
    others = [apis.add(limits=[TWO]) for _ in range(2)]
    worker = apis.worker()
    claims = worker.take(10).claims
    assert ids(claims) == [first, *others]
    assert list(apis.parked()) == [both]
    worker.settle(claims[0], Action.ACKNOWLEDGE)
    # Let in by one limit, it waits for the other.
    assert apis.let_in() == 1
    assert not worker.take(10).claims
    worker.settle(claims[1], Action.ACKNOWLEDGE)
    assert apis.let_in() == 1
    assert ids(worker.take(10).claims) == [both]


def test_a_killed_worker_gives_its_slots_back_with_its_lease(apis: ShardApis) -> None:
    first = apis.add(limits=[ONE])
    apis.clock.advance(MS)
    second = apis.add(limits=[ONE])
    assert ids(apis.worker().take(10).claims) == [first]
    assert list(apis.parked()) == [second]
    apis.expire_leases()
    worker = apis.worker()
    # The one that came back is older than the one that waits.
    (claim,) = worker.take(10).claims
    assert claim.raw_id == first
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert apis.let_in() == 1
    assert ids(worker.take(10).claims) == [second]


def test_jobs_that_wait_are_let_in_by_their_ranks(apis: ShardApis) -> None:
    running = apis.add(limits=[ONE])
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    low, high = apis.add(limits=[ONE], priority=-5), apis.add(limits=[ONE], priority=5)
    worker.take(10)
    assert claim.raw_id == running
    worker.settle(claim, Action.ACKNOWLEDGE)
    apis.let_in()
    (claim,) = worker.take(10).claims
    assert claim.raw_id == high
    worker.settle(claim, Action.ACKNOWLEDGE)
    apis.let_in()
    assert ids(worker.take(10).claims) == [low]


def test_a_newcomer_does_not_overtake_jobs_that_wait(apis: ShardApis) -> None:
    made = [apis.add(limits=[ONE]) for _ in range(2)]
    worker = apis.worker()
    (claim,) = worker.take(10).claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    newcomer = apis.add(limits=[ONE])
    assert not worker.take(10).claims
    apis.let_in()
    assert ids(worker.take(10).claims) == [made[1]]
    assert list(apis.parked()) == [newcomer]


def test_a_queue_that_nobody_serves_holds_up_no_other(apis: ShardApis) -> None:
    first = apis.add(limits=[ONE])
    worker = apis.worker()
    (claim,) = worker.take(10, "default", "other").claims
    idle = apis.add(limits=[ONE], queue="other")
    second = apis.add(limits=[ONE])
    worker.take(10, "default", "other")
    assert set(apis.parked()) | set(apis.parked("other")) == {idle, second}
    worker.settle(claim, Action.ACKNOWLEDGE)
    apis.let_in()
    assert claim.raw_id == first
    assert ids(worker.take(10, "default").claims) == [second]
    assert list(apis.ready("other")) == [idle]


def test_a_job_of_a_tenant_that_is_paused_by_now_holds_up_no_other(apis: ShardApis) -> None:
    apis.add(limits=[ONE])
    of_a = apis.add(limits=[ONE], queue="fair", tenant="a")
    of_b = apis.add(limits=[ONE], queue="fair", tenant="b")
    worker = apis.worker()
    (claim,) = worker.take(10, "default", "fair").claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert apis.let_in() == 1
    (let_in,) = apis.ready("fair")
    other = {of_a: of_b, of_b: of_a}[let_in]
    apis.operations.workers.pause_tenant("fair", {of_a: "a", of_b: "b"}[let_in], by="ann")
    apis.clock.advance(10 * SECOND)
    assert apis.let_in() == 1
    assert ids(worker.take(10, "default", "fair").claims) == [other]


def test_not_all_waiting_jobs_become_ready_while_no_worker_is_free(apis: ShardApis) -> None:
    made = [apis.add(limits=[TWO]) for _ in range(20)]
    worker = apis.worker()
    claims = worker.take(20).claims
    for claim in claims:
        worker.settle(claim, Action.ACKNOWLEDGE)
        apis.let_in()
    for _ in range(5):
        apis.clock.advance(10 * SECOND)
        apis.let_in()
    assert list(apis.ready()) == made[2:4]


def test_waiting_jobs_are_looked_at_again_without_an_event(apis: ShardApis) -> None:
    made = [apis.add(limits=[ONE]) for _ in range(2)]
    worker = apis.worker()
    worker.take(10)
    # The slot is lost without a word.
    apis.client.delete(apis.keys("claim_limits"))
    slots = [entry for entry in apis.client.zrange(apis.keys("limit_jobs"), 0, -1) if entry.startswith(b"\2")]
    apis.client.zrem(apis.keys("limit_jobs"), *slots)
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    assert apis.let_in() == 1
    assert ids(worker.take(10).claims) == [made[1]]


def test_jobs_without_limits_pass_by(apis: ShardApis) -> None:
    limited = [apis.add(limits=[ONE]) for _ in range(200)]
    plain = [apis.add() for _ in range(3)]
    worker = apis.worker()
    taken, answer = [], worker.take(3)
    while True:
        taken += ids(answer.claims)
        if not answer.has_more:
            break
        answer = worker.take(3)
    assert taken == [limited[0], *plain]
    assert len(apis.parked()) == 199


def test_a_claim_parks_few_jobs_at_a_time(apis: ShardApis) -> None:
    for _ in range(300):
        apis.add(limits=[ONE])
    worker = apis.worker()
    answer = worker.take(1)
    worker.take(1)
    assert answer.has_more
    assert 1 <= len(apis.parked()) <= 2 * 64


def test_a_worker_claims_no_more_limited_jobs_than_it_has_slots(apis: ShardApis) -> None:
    made = [apis.add(limits=[LimitUse("two", str(number))]) for number in range(5)]
    plain = apis.add(priority=5)
    worker = apis.worker()
    reply = worker.take(5, want_limited=2)
    assert ids(reply.claims) == [plain, *made[:2]]
    assert reply.more_are_bounded
    assert not worker.take(5, want_limited=0).claims
    assert ids(worker.take(5, want_limited=5).claims) == made[2:]


def test_a_job_that_does_not_wait_is_to_be_dropped(apis: ShardApis) -> None:
    first, second = [apis.add(limits=[ONE], drops=True) for _ in range(2)]
    worker = apis.worker()
    claims = worker.take(10).claims
    assert [(claim.raw_id, claim.is_dropped) for claim in claims] == [(first, False), (second, True)]
    assert [claim.is_dropped for claim in worker.again().claims] == [False, True]
    worker.settle(claims[1], Action.ACKNOWLEDGE)
    assert apis.traces(second) == []
    assert ids(worker.take(10).claims) == []
    third = apis.add(limits=[ONE], drops=True)
    (dropped,) = worker.take(10).claims
    assert (dropped.raw_id, dropped.is_dropped) == (third, True)


def test_a_dropped_job_frees_no_slot_of_another(apis: ShardApis) -> None:
    apis.add(limits=[ONE])
    apis.add(limits=[ONE], drops=True)
    worker = apis.worker()
    _, dropped = worker.take(10).claims
    worker.settle(dropped, Action.ACKNOWLEDGE)
    apis.add(limits=[ONE])
    assert not worker.take(10).claims


def test_a_released_job_gives_its_slot_back(apis: ShardApis) -> None:
    made = apis.add(limits=[ONE])
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.take(0, settle=[settlement(claim, Action.RELEASE)])
    assert ids(worker.take(1).claims) == [made]


def test_a_job_whose_attempt_crashed_waits_for_its_limit_too(apis: ShardApis) -> None:
    crashed = apis.add(limits=[ONE])
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.take(0, settle=[settlement(claim, Action.RETRY, suspect=True, keeps_rank=True)])
    apis.promote()
    other = apis.add(limits=[ONE], priority=5)
    (running,) = worker.take(5, may_recover=False).claims
    assert running.raw_id == other
    assert list(apis.recovered()) == [crashed]
    plain = apis.add(priority=-5)
    assert ids(worker.take(5).claims) == [plain]
    assert apis.where(crashed) == ["parked:default"]
    worker.settle(running, Action.ACKNOWLEDGE)
    assert apis.let_in() == 1
    assert not worker.take(5, may_recover=False).claims
    assert ids(worker.take(5).claims) == [crashed]
    assert apis.where(crashed) == ["leases"]


def test_a_crashed_job_beyond_the_claims_of_a_worker_does_not_wake_it(apis: ShardApis) -> None:
    crashed = [apis.add(limits=[TWO]) for _ in range(2)]
    worker = apis.worker()
    claims = worker.take(2).claims
    worker.take(0, settle=[settlement(each, Action.RETRY, suspect=True, keeps_rank=True) for each in claims])
    apis.promote()
    assert not worker.take(2, may_recover=False).claims
    assert list(apis.recovered()) == crashed
    reply = worker.take(2, want_limited=0)
    assert not reply.claims
    assert reply.more_are_bounded
    assert not reply.recovered
    assert ids(worker.take(2, want_limited=1).claims) == crashed[:1]


def test_a_slot_of_a_lease_that_has_ended_is_free(apis: ShardApis) -> None:
    made = [apis.add(limits=[ONE]) for _ in range(3)]
    assert ids(apis.worker().take(3).claims) == made[:1]
    # As a script of a release that knows no limits ends it.
    apis.client.delete(apis.keys("leases"))
    assert apis.operations.limits.take_slot(ONE, lease=bytes(30), length_us=HOUR)[0] is SlotReply.TAKEN
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    assert not apis.let_in(), "other code has the slot"
    apis.operations.limits.give_back_slot(ONE, lease=bytes(30))
    assert apis.let_in() == 1
    worker = apis.worker()
    assert ids(worker.take(3).claims) == made[1:2]
    apis.client.delete(apis.keys("leases"))
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    assert apis.let_in() == 1
    assert ids(worker.take(3).claims) == made[2:]


def test_an_unknown_limit_keeps_nobody_from_beginning(apis: ShardApis) -> None:
    made = [apis.add(limits=[LimitUse("none")]) for _ in range(3)]
    assert ids(apis.worker().take(10).claims) == made


def test_new_rules_apply_from_the_next_claim_and_lose_no_slot(apis: ShardApis) -> None:
    made = [apis.add(limits=[ONE]) for _ in range(5)]
    worker = apis.worker()
    first = worker.take(10).claims
    rules = dict(apis.config.tasks.limits)
    rules["one"] = rules["two"]
    assert apis.operations.limits.set_limits(rules.items())
    assert not apis.operations.limits.set_limits(rules.items())
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    apis.let_in()
    second = worker.take(10).claims
    assert ids(first + second) == made[:2]
    apis.store.store_limits()
    for claim in first + second:
        worker.settle(claim, Action.ACKNOWLEDGE)
        apis.let_in()
    assert ids(worker.take(10).claims) == [made[2]]


def test_jobs_with_several_limits_do_not_wait_for_each_other(apis: ShardApis) -> None:
    first, second = LimitUse("one", "a"), LimitUse("one", "b")
    made = [apis.add(limits=[first, second]) for _ in range(4)]
    limits, outside, worker = apis.operations.limits, bytes(30), apis.worker()
    limits.take_slot(second, lease=outside, length_us=HOUR)
    worker.take(4)
    limits.take_slot(first, lease=outside, length_us=HOUR)
    limits.give_back_slot(second, lease=outside)
    for _ in range(2):
        apis.let_in()
        assert not worker.take(4).claims
    # Two wait for the one limit now, and two for the other.
    limits.give_back_slot(first, lease=outside)
    began: list[bytes] = []
    for _ in range(12):
        apis.let_in()
        for claim in worker.take(4).claims:
            began.append(claim.raw_id)
            worker.settle(claim, Action.ACKNOWLEDGE)
    assert sorted(began) == made
