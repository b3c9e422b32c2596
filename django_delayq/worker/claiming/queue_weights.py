"""Queue weights: the order in which a worker names its queues in the next exchange, so that each gets its share.

An exchange in strict order claims from its first queue, and from the next one only what is missing. So the queue that
is furthest behind its share is the first. How many claims an exchange may make follows from how far the queues are from
their shares.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from django_delayq.store.claims import ExchangeReply

#: Most claims in one exchange.
MAX_BATCH = 16
#: Claims by which a queue should be ahead of its share, or behind it, at most. Over claims in a row it may go from one
#: end to the other, and these are then right within one batch. A little less than half a batch, because an exchange
#: makes at least one claim, even if all queues are at an end.
_TOLERANCE = 7.0


class QueueWeights:
    """The shares of one worker's queues on one shard. It counts claims, not run times."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        #: The claims of each queue, divided by its weight. In exact shares all are equal.
        self._used = dict.fromkeys(weights, 0.0)
        #: For the next exchange: the queues in order, and the most claims.
        self.order: tuple[str, ...] = ()
        self.limit = MAX_BATCH
        self._plan()

    def record_reply(self, reply: ExchangeReply, *, released: Iterable[str]) -> None:
        """Count the claims of a reply. See `record()`."""
        # A reply to a request that wanted none does not show whether there are more.
        has_more = reply.has_more or not reply.claimed
        self.record([claim.queue for claim in reply.claims], has_more=has_more, released=released)

    def record(self, claimed: Sequence[str], *, has_more: bool, released: Iterable[str] = ()) -> None:
        """Count the claims of an exchange that named the queues in `order`, and plan the next one.

        `claimed` has the queue of each claim, `released` that of each claim that was given back. Without `has_more` all
        queues are empty now.
        """
        for queue in claimed:
            self._used[queue] += 1 / self._weights[queue]
        for queue in released:
            self._used[queue] -= 1 / self._weights[queue]
        if has_more:
            self._forfeit(max(map(self.order.index, set(claimed)), default=0))
        else:
            self._used = dict.fromkeys(self._used, 0.0)
        self._plan()

    def _forfeit(self, exhausted: int) -> None:
        """Take from the first queues, which have no jobs left, what they did not use. What they owe they still owe."""
        rest = self.order[exhausted:]
        mean = self._mean(rest)
        for queue in self.order[:exhausted]:
            self._used[queue] = max(self._used[queue], mean)

    def _mean(self, queues: Sequence[str]) -> float:
        """Return what each of these queues would have used if the claims of all were in exact shares."""
        total = sum(self._weights[each] for each in queues)
        return sum(self._weights[each] * self._used[each] for each in queues) / total

    def _plan(self) -> None:
        mean, total = self._mean(tuple(self._weights)), sum(self._weights.values())
        # As if one more claim were due: single claims then alternate smoothly, also between very different weights.
        due = mean + 1 / total
        self.order = tuple(sorted(self._weights, key=lambda queue: self._weights[queue] * (self._used[queue] - due)))
        # If the first queues are empty, all claims may come from any later one. So the limit holds for each of them,
        # with the shares among those that follow it.
        limit, weights, claims, soonest = float(MAX_BATCH), 0, 0.0, inf
        for queue in reversed(self.order):
            weight, used = self._weights[queue], self._used[queue]
            weights, claims = weights + weight, claims + weight * used
            mean = claims / weights
            if weights > weight:
                ahead = (_TOLERANCE - weight * (used - mean)) * weights / (weights - weight)
                behind = (soonest - mean) * weights
                limit = min(limit, ahead, behind)
            soonest = min(soonest, used + _TOLERANCE / weight)
        # Rounded, because sums of floats fall a little short of whole numbers.
        self.limit = max(1, int(round(limit, 6)))
