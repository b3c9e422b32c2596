"""Queue weights: the shares of the claims, over any claims in a row, whatever the exchanges return."""

from collections.abc import Mapping
from itertools import cycle
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_delayq.worker.claiming.queue_weights import MAX_BATCH, QueueWeights
from tests.shares import furthest

WEIGHTS = st.one_of(st.sampled_from([1, 2, 3, 6, 10, 50, 100]), st.integers(1, 100))


class Exchanges:
    """Exchanges in strict order, as Redis makes them, with queues of the given sizes."""

    def __init__(self, weights: Mapping[str, int], **ready: float) -> None:
        self.weights = QueueWeights(weights)
        self.ready = {queue: ready.get(queue, inf) for queue in weights}
        self.claimed: list[str] = []

    def exchange(self, want: int = 64) -> list[str]:
        """Claim at most so many jobs; return the queue of each."""
        made: list[str] = []
        for queue in self.weights.order:
            count = min(self.ready[queue], min(want, self.weights.limit) - len(made))
            self.ready[queue] -= count
            made += [queue] * int(count)
        self.weights.record(made, has_more=any(self.ready.values()))
        self.claimed += made
        return made

    def claim(self, count: int, want: int = 64) -> list[str]:
        """Claim at least so many jobs in exchanges of at most `want`; return the queue of each."""
        before = len(self.claimed)
        while len(self.claimed) < before + count:
            assert self.exchange(want), "no job is left"
        return self.claimed[before:]


@pytest.mark.parametrize("weights", [{"mail": 6, "bulk": 1}, {"bulk": 1, "mail": 6}])
def test_single_claims_alternate(weights: dict[str, int]) -> None:
    claimed = Exchanges(weights).claim(70, want=1)
    assert claimed == ["mail", "mail", "mail", "bulk", "mail", "mail", "mail"] * 10


def test_exact_shares_are_kept_in_single_claims_of_many_queues() -> None:
    weights = {"a": 5, "b": 3, "c": 2, "d": 1, "e": 1}
    assert furthest(Exchanges(weights).claim(1_200, want=1), weights, window=12) <= 1


@pytest.mark.parametrize(
    "weights", [{"mail": 6, "bulk": 1}, {"a": 1, "b": 1}, {"a": 100, "b": 1}, {"a": 5, "b": 3, "c": 2}]
)
def test_batches_are_nearly_full(weights: dict[str, int]) -> None:
    exchanges = Exchanges(weights)
    sizes = [len(exchanges.exchange()) for _ in range(200)]
    assert max(sizes) == MAX_BATCH
    assert sum(sizes) > 13 * len(sizes)
    assert furthest(exchanges.claimed, weights, window=100) <= MAX_BATCH


@pytest.mark.parametrize(
    ("sizes", "empty"),
    [
        ([10] + [1] * 10, []),
        ([3, 6, 1, 1, 10], []),
        ([30, 20, 1, 1, 1], [0]),
        ([20, 100, 1, 50, 2, 5, 50, 2], [0, 1, 3]),
        ([100, 100, 1, 5, 2, 100, 1, 1], [1, 2, 5]),
    ],
)
@pytest.mark.parametrize("want", [5, 16, 64])
def test_light_queues_do_not_hold_up_a_heavy_one(sizes: list[int], empty: list[int], want: int) -> None:
    weights = {f"queue {number}": weight for number, weight in enumerate(sizes)}
    without = [f"queue {number}" for number in empty]
    exchanges = Exchanges(weights, **dict.fromkeys(without, 0))
    exchanges.claim(1_500, want)
    full = {queue: weight for queue, weight in weights.items() if queue not in without}
    assert furthest(exchanges.claimed, full, window=100) <= MAX_BATCH


@settings(max_examples=200)
@given(
    st.lists(WEIGHTS, min_size=2, max_size=8),
    st.lists(st.integers(1, 64), min_size=1, max_size=7),
    st.lists(st.lists(st.sampled_from([0, 0, 1, 3, 16, inf]), min_size=8, max_size=8), min_size=1, max_size=9),
    st.data(),
)
def test_shares_are_right_within_a_batch_over_any_claims_in_a_row(
    sizes: list[int], wants: list[int], arrivals: list[list[float]], data: st.DataObject
) -> None:
    weights = {f"queue {number}": weight for number, weight in enumerate(sizes)}
    # These have jobs all the time; jobs of the others come and go.
    full = data.draw(st.lists(st.sampled_from(list(weights)), min_size=2, unique=True))
    exchanges = Exchanges(weights)
    for at, want in zip(range(150), cycle(wants), strict=False):
        for queue, count in zip(weights, arrivals[at // 5 % len(arrivals)], strict=False):
            exchanges.ready[queue] = inf if queue in full else count
        assert len(exchanges.exchange(want)) <= MAX_BATCH
    shares = {queue: weights[queue] for queue in full}
    among_them = [queue for queue in exchanges.claimed if queue in full]
    for window in filter(lambda size: size <= len(among_them), (100, 50, 25)):
        assert furthest(among_them, shares, window=window) <= MAX_BATCH


@pytest.mark.parametrize("empty", ["mail", "bulk"])
def test_the_share_of_an_empty_queue_goes_to_the_others(empty: str) -> None:
    weights = {"mail": 6, "bulk": 1, "rare": 1}
    exchanges = Exchanges(weights, **{empty: 0})
    del weights[empty]
    assert furthest(exchanges.claim(1_000), weights, window=100) <= MAX_BATCH


@pytest.mark.parametrize("want", [1, 5, 64])
@pytest.mark.parametrize("empty", ["mail", "bulk"])
def test_an_empty_queue_gains_no_credit(want: int, empty: str) -> None:
    exchanges = Exchanges({"mail": 6, "bulk": 1}, **{empty: 0})
    exchanges.claim(1_000, want)
    exchanges.ready[empty] = inf
    claimed = exchanges.claim(400, want)
    assert furthest(claimed, {"mail": 6, "bulk": 1}, window=100) <= MAX_BATCH
    assert want > 1 or furthest(claimed, {"mail": 6, "bulk": 1}, window=7) <= 1


@pytest.mark.parametrize("want", [1, 64])
def test_a_queue_whose_jobs_come_in_bursts_gets_no_more_than_its_share(want: int) -> None:
    exchanges = Exchanges({"mail": 6, "bulk": 1})
    while len(exchanges.claimed) < 2_000:
        # It is empty after each of its turns.
        exchanges.ready["bulk"] = min(want, 8)
        while exchanges.ready["bulk"]:
            exchanges.exchange(want)
    assert exchanges.claimed.count("bulk") <= 2_000 / 7 + MAX_BATCH


def test_a_queue_that_was_alone_owes_nothing() -> None:
    exchanges = Exchanges({"mail": 6, "bulk": 1}, mail=0)
    exchanges.claim(1_000, want=1)
    exchanges.ready["mail"] = inf
    assert exchanges.claim(70, want=1).count("bulk") == 10


def test_all_begin_anew_after_no_job_was_left() -> None:
    exchanges = Exchanges({"mail": 6, "bulk": 1}, mail=1, bulk=16)
    exchanges.claim(17)
    exchanges.ready = dict.fromkeys(exchanges.ready, inf)
    assert exchanges.claim(70, want=1).count("bulk") == 10


def test_claims_that_were_given_back_do_not_count() -> None:
    exchanges = Exchanges({"mail": 6, "bulk": 1})
    ran: list[str] = []
    for _ in range(140):
        [*kept] = exchanges.exchange()
        if kept[0] == "bulk":
            # The first of them takes long.
            exchanges.weights.record([], has_more=True, released=kept[1:])
            kept = kept[:1]
        ran += kept
    assert abs(ran.count("bulk") - len(ran) / 7) <= MAX_BATCH


def test_a_reply_without_claims_shows_no_empty_queue() -> None:
    exchanges = Exchanges({"mail": 6, "bulk": 1})
    exchanges.claim(3, want=1)
    order = exchanges.weights.order
    exchanges.weights.record([], has_more=True)
    assert exchanges.weights.order == order == ("bulk", "mail")


def test_one_queue_alone_is_claimed_in_batches() -> None:
    assert Exchanges({"mail": 3}, mail=20).claim(20) == ["mail"] * 20
