"""Load forecast: when jobs start that are due, with the slots that there are."""

import pytest

from django_delayq.load_forecast import QueueLoad, StepForecast, WorkerSlots, forecast, slots_needed

SECOND = 1_000_000
MINUTE = 60 * SECOND


def load(*due: float, ready: int = 0, run_s: float = 1) -> QueueLoad:
    return QueueLoad(ready=ready, due=due, run_us=run_s * SECOND)


def worker(slots: int, *queues: str) -> WorkerSlots:
    return WorkerSlots(slots=slots, queues=frozenset(queues))


def delays_s(loads: dict[str, QueueLoad], *workers: WorkerSlots) -> list[int | None]:
    """Return the delay of each minute in seconds."""
    found = forecast(loads, workers, step_us=MINUTE)
    return [None if each.delay_us is None else round(each.delay_us / SECOND) for each in found]


def test_jobs_that_the_slots_can_run_are_not_late() -> None:
    assert forecast({"mail": load(100, 0, 120)}, [worker(2, "mail")], step_us=MINUTE) == [
        StepForecast(due=100, delay_us=0),
        StepForecast(due=0, delay_us=0),
        StepForecast(due=120, delay_us=0),
    ]


def test_more_jobs_than_the_slots_can_run_are_late_until_the_rest_is_done() -> None:
    # 240 s of work come within the first minute, of which one slot does 60 s.
    assert delays_s({"mail": load(240, 10, 10, 0, 0, 10)}, worker(1, "mail")) == [180, 180, 130, 0, 0, 0]


def test_what_waits_now_delays_what_comes() -> None:
    assert delays_s({"mail": load(1, 1, ready=90)}, worker(1, "mail")) == [90, 31]


def test_jobs_that_nobody_serves_and_jobs_beyond_the_end_do_not_start() -> None:
    assert delays_s({"mail": load(1, 0)}) == [None, 0]
    assert delays_s({"mail": load(1, 0), "pdf": load(1, 0)}, worker(1, "pdf")) == [None, 0]
    assert delays_s({"mail": load(300, 0)}, worker(1, "mail")) == [None, 0]


def test_queues_of_other_workers_do_not_wait_for_each_other() -> None:
    loads = {"mail": load(240, 0, 0, 0), "pdf": load(30, 30, 30, 30)}
    assert delays_s(loads, worker(1, "mail"), worker(1, "pdf"))[1:] == [0, 0, 0]
    assert forecast(loads, [worker(1, "mail"), worker(1, "pdf")], step_us=MINUTE)[0].delay_us == 180 * SECOND


def test_a_worker_gives_the_slots_that_one_pool_does_not_need_to_the_other() -> None:
    loads = {"mail": load(60, 0), "pdf": load(60, 0)}
    workers = (worker(1, "mail", "pdf"), worker(1, "mail"))
    assert delays_s(loads, *workers) == [0, 0]
    # The same work in one queue, which only one of them serves.
    assert delays_s({"mail": load(0, 0), "pdf": load(120, 0)}, *workers) == [60, 0]


def test_the_mean_run_time_counts() -> None:
    assert delays_s({"mail": load(60, 0, 0, run_s=2)}, worker(1, "mail")) == [60, 0, 0]


@pytest.mark.parametrize(
    ("within_s", "slots"),
    [(0.001, 240), (30, 8), (60, 4), (180, 2)],
)
def test_the_slots_that_keep_the_delay_within_a_bound(within_s: float, slots: int) -> None:
    loads = {"mail": load(240, 0, 0, 0, 0)}
    assert slots_needed(loads.values(), step_us=MINUTE, within_us=round(within_s * SECOND)) == slots
    late = [delay for delay in delays_s(loads, worker(slots, "mail")) if delay]
    assert max(late, default=0) <= within_s


def test_as_many_slots_as_jobs_are_enough() -> None:
    needed = [
        slots_needed([load(number, run_s=3_600)], step_us=MINUTE, within_us=MINUTE) for number in (0.5, 1, 10, 1_000)
    ]
    assert needed == [1, 1, 10, 1_000]
    assert slots_needed([load(0, ready=7, run_s=3_600)], step_us=MINUTE, within_us=MINUTE) == 7


def test_no_jobs_need_no_slots() -> None:
    assert slots_needed([], step_us=MINUTE, within_us=MINUTE) == 0
    assert slots_needed([load(0, 0)], step_us=MINUTE, within_us=MINUTE) == 0
    assert forecast({}, [worker(1, "mail")], step_us=MINUTE) == []


def test_a_thousand_queues_cost_what_their_pools_cost() -> None:
    loads = {f"queue {number}": load(*[0.1] * 96) for number in range(1_000)}
    found = forecast(loads, [worker(4, *loads), worker(2, *loads)], step_us=15 * MINUTE)
    assert [round(each.due) for each in found] == [100] * 96
    assert {each.delay_us for each in found} == {0}
