"""Exchange session: a worker's one request in flight. A request whose reply was lost is sent again unchanged."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from django_delayq.clock import DAY_US
from django_delayq.exceptions import StaleExchange, StoreError
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, stopped
from django_delayq.store.claims import Claims, ExchangeReply, ExchangeRequest, Settlement, SweepReply
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.settlement import decide_settlement

Settled = list[tuple[Settlement, Outcome]]


class InFlight(Enum):
    """What a worker has in flight."""

    #: No request.
    NOTHING = auto()
    #: A request to send, or to send again because its reply was lost.
    EXCHANGE = auto()
    #: A request that waits in Redis behind a blocking pop.
    BLOCKING = auto()
    #: The pop has ended, so the reply to the request behind it can be read.
    REPLY = auto()


class ExchangeSession:
    """The settle-and-claim requests of one worker."""

    def __init__(
        self,
        claims: Claims,
        *,
        name: str,
        longest_wait_us: int = DAY_US,
        store_limits: Callable[[], object] = lambda: None,
    ) -> None:
        """`longest_wait_us` is UNKNOWN_TASK_TTL. `store_limits` stores the rules of LIMITS."""
        self._claims = claims
        self._name = name
        self._longest_wait_us = longest_wait_us
        self._store_limits = store_limits
        #: Whether the server knows the worker's name.
        self._is_known = False
        self._request: tuple[ExchangeRequest, Settled] | None = None
        self.in_flight = InFlight.NOTHING

    @property
    def worker_id(self) -> bytes:
        """The id of this worker in Redis."""
        return self._claims.worker_id

    @property
    def settling(self) -> list[bytes]:
        """The leases whose outcomes are in flight."""
        return [settlement.claim.lease for settlement, _ in self._request[1]] if self._request else []

    def prepare(
        self,
        *,
        queues: Sequence[str],
        want: int,
        want_fair: int | None = None,
        want_limited: int | None = None,
        strict: bool,
        may_recover: bool = True,
        ended: Sequence[tuple[Claim, Outcome]] = (),
    ) -> None:
        """Build the next request; `exchange()` sends it."""
        settled = [
            (
                decide_settlement(claim, outcome, worker=self._name, longest_wait_us=self._longest_wait_us),
                outcome,
            )
            for claim, outcome in ended
        ]
        request = self._claims.prepare(
            queues=queues,
            want=want,
            want_fair=want_fair,
            want_limited=want_limited,
            settlements=[settlement for settlement, _ in settled],
            strict=strict,
            may_recover=may_recover,
            worker_name="" if self._is_known else self._name,
        )
        self._request, self.in_flight = (request, settled), InFlight.EXCHANGE

    def prepare_blocking(self, **options: Any) -> ScriptCall:
        """Build a request without outcomes; returns the call to send behind a blocking pop."""
        request = self._claims.prepare(worker_name="" if self._is_known else self._name, blocking=True, **options)
        self._request, self.in_flight = (request, []), InFlight.BLOCKING
        return self._claims.pack(request)

    def sweep(self, *, all_queues: bool) -> SweepReply:
        """Find jobs whose notification was lost while the request blocks. See `Claims.sweep()`. Raises `StoreError`."""
        assert self._request is not None
        return self._claims.sweep(self._request[0], all_queues=all_queues)

    def cancel_blocking(self) -> None:
        """Cancel the blocking request: the next `exchange()` returns its claims, or ensures that it makes none."""
        assert self._request is not None
        request, _ = self._request
        # Redis runs the first request with this number: the one behind the pop, or this one, which claims nothing.
        request.call, request.want = None, 0
        self.in_flight = InFlight.EXCHANGE

    def exchange(self, outcomes: OutcomeBuffer) -> tuple[ExchangeReply, Settled]:
        """Send the request if necessary, and return its reply and the settlements in it that were applied or lost.

        Those that were refused because their job was asked to stop return to the buffer as stopped.

        Raises `StaleExchange` if the server has seen a newer request; the outcomes return to the buffer and nothing is
        in flight. After any other `StoreError` the same request is sent by the next call.
        """
        assert self._request is not None
        request, settled = self._request
        # A reply is read once. If that fails, also by a bug, the request is sent again.
        self.in_flight = InFlight.EXCHANGE
        try:
            if not self._is_known:
                # Redis was away when this process started, or lost its data: no claim is made without the rules.
                self._store_limits()
            reply = self._claims.settle_and_claim(request)
        except StaleExchange:
            outcomes.restore((settlement.claim, outcome) for settlement, outcome in settled)
            self._request, self.in_flight = None, InFlight.NOTHING
            raise
        except StoreError:
            if request.blocking:
                # Sent again after an outage, it would claim jobs under leases that count from before the outage.
                self.cancel_blocking()
            raise
        self._request, self.in_flight = None, InFlight.NOTHING
        if reply.stopped:
            # They were asked to stop before this worker knew it.
            refused = [(each.claim, outcome) for each, outcome in settled if each.claim.lease in reply.stopped]
            outcomes.restore((claim, stopped(outcome)) for claim, outcome in refused)
            settled = [item for item in settled if item[0].claim.lease not in reply.stopped]
        # Sent with the first request, and again if the server lost its state.
        self._is_known = not reply.unknown_worker or not self._is_known
        return reply, settled
