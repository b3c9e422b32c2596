"""What jobs leave behind under limits when they come back, end in other ways, or the clock is set back."""

from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action, Decision
from django_delayq.store.claims import Settlement
from django_delayq.store.operations.limits import SlotReply
from tests.shard_apis import HOUR, MS, SECOND, ShardApis, ids, settlement

TASK = "tests.sample_app.tasks.noop"
EVEN, ODD, ONE, RATE = LimitUse("even"), LimitUse("odd"), LimitUse("one"), LimitUse("rate")


def test_a_job_that_its_paused_task_kept_leaves_nothing(apis: ShardApis) -> None:
    made, worker = apis.add(limits=[ONE]), apis.worker()
    (claim,) = worker.take(1).claims
    apis.operations.limits.pause_task(TASK, by="ann")
    parks = Decision(action=Action.RELEASE, parks=True)
    worker.take(0, settle=[Settlement(claim=claim, decision=parks, attempts=claim.attempts)])
    assert list(apis.parked()) == [made]
    apis.operations.limits.resume_task(TASK)
    assert apis.let_in() == 1
    (claim,) = worker.take(1).claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert not apis.client.exists(apis.keys("limit_jobs"))


def test_a_job_that_its_paused_task_kept_costs_its_tenant_no_turn(apis: ShardApis) -> None:
    for _ in range(2):
        apis.add(queue="fair", tenant="a")
    worker = apis.worker()
    apis.operations.limits.pause_task(TASK, by="ann")
    before = apis.client.zrange(apis.keys("turns"), 0, -1)
    (claim,) = worker.take(1, "fair").claims
    parks = Decision(action=Action.RELEASE, parks=True)
    worker.take(0, settle=[Settlement(claim=claim, decision=parks, attempts=claim.attempts)])
    assert apis.client.zrange(apis.keys("turns"), 0, -1) == before


def test_a_crashed_job_is_parked_once(apis: ShardApis) -> None:
    crashed, second = [apis.add(limits=[ONE]) for _ in range(2)]
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.settle(claim, Action.RETRY, suspect=True)
    apis.promote()
    assert ids(worker.take(1, may_recover=False).claims) == [second]
    assert list(apis.recovered()) == [crashed]
    reply = apis.worker().take(2)
    assert not reply.claims
    assert not reply.has_more
    assert list(apis.parked()) == [crashed]


def test_the_turns_of_tenants_are_forgotten_with_their_last_job(apis: ShardApis) -> None:
    made = [apis.add(queue="fair", tenant=name, limits=[ONE]) for name in ("a", "b", "c")]
    worker = apis.worker()
    (claim,) = worker.take(3, "fair").claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert apis.let_in() == 1
    for raw_id in {*made} - {claim.raw_id}:
        apis.operations.cancel(raw_id)
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    apis.let_in()
    assert not apis.client.exists(apis.keys("limit_turns"), apis.keys("next_let_in"), apis.keys("limit_jobs"))


def test_the_dispatcher_is_told_a_whole_microsecond(apis: ShardApis) -> None:
    for _ in range(2):
        apis.add(limits=[ODD])
    apis.worker().take(2)
    promoted = apis.promote()
    apis.clock.advance(promoted.sleep_us)
    promoted = apis.promote()
    assert apis.promotion.let_in(promoted.limits_to_let_in, promoted.parked_in) == 1
    assert apis.promotion.read_next_promotion() is not None


def test_jobs_that_wait_are_let_in_soon_after_the_clock_is_set_back(apis: ShardApis) -> None:
    made = [apis.add(limits=[EVEN]) for _ in range(2)]
    worker = apis.worker()
    worker.take(2)
    apis.clock.advance(-HOUR)
    apis.let_in()
    apis.clock.advance(10 * MS)
    assert apis.let_in() == 1
    assert ids(worker.take(1).claims) == made[1:]


def test_code_that_takes_a_slot_waits_no_longer_than_a_burst_after_the_clock_is_set_back(apis: ShardApis) -> None:
    limits, lease = apis.operations.limits, bytes(30)
    assert limits.take_slot(EVEN, lease=lease, length_us=SECOND)[0] is SlotReply.TAKEN
    apis.clock.advance(-HOUR)
    limits.give_back_slot(EVEN, lease=lease)
    assert limits.take_slot(EVEN, lease=lease, length_us=SECOND) == (SlotReply.CLOSED, 10 * MS)
    apis.clock.advance(10 * MS)
    assert limits.take_slot(EVEN, lease=lease, length_us=SECOND)[0] is SlotReply.TAKEN


def test_a_slot_that_code_gives_back_leaves_nothing(apis: ShardApis) -> None:
    limits, lease = apis.operations.limits, bytes(30)
    assert limits.take_slot(ONE, lease=lease, length_us=SECOND)[0] is SlotReply.TAKEN
    assert limits.give_back_slot(ONE, lease=lease)
    assert not apis.client.exists(apis.keys("limit_jobs"), apis.keys("outside_slots"))


def test_a_back_off_that_is_over_is_not_shown(apis: ShardApis) -> None:
    apis.operations.limits.back_off(ONE, SECOND)
    limits = apis.store.limits(0)
    [state] = limits.find_limits([ONE])
    assert (state.is_open, state.backs_off_until_us) == (False, apis.clock.now_us + SECOND)
    apis.clock.advance(SECOND)
    [state] = limits.find_limits([ONE])
    assert (state.is_open, state.backs_off_until_us) == (True, None)


def test_no_task_backs_off_for_longer_than_a_day_after_the_clock_is_set_back(apis: ShardApis) -> None:
    made, day = apis.add(limits=[ONE]), 24 * HOUR
    apis.operations.limits.back_off(ONE, day)
    apis.clock.advance(-30 * day)
    worker = apis.worker()
    assert not worker.take(1).claims
    apis.clock.advance(day)
    apis.let_in()
    assert ids(worker.take(1).claims) == [made]


def test_a_job_that_comes_back_late_gives_back_only_what_has_not_passed(apis: ShardApis) -> None:
    for _ in range(3):
        apis.add(limits=[EVEN])
    first, second = apis.worker(), apis.worker()
    (claim,) = first.take(1).claims
    apis.clock.advance(10 * MS)
    assert len(second.take(1).claims) == 1
    apis.clock.advance(1 * MS)
    # The time that it cost was over when the second job began.
    first.take(0, settle=[settlement(claim, Action.RELEASE)])
    assert not second.take(1).claims
    apis.clock.advance(9 * MS)
    apis.let_in()
    assert len(second.take(1).claims) == 1
