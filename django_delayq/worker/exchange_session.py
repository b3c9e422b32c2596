"""Exchanger: one exchange in flight at a time; one whose answer was lost is sent again word for word."""

from collections.abc import Sequence
from typing import Any

from django_delayq.exceptions import StaleExchange, StoreError
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.store.claims import Claims, ExchangeReply, ExchangeRequest, Settlement
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.settlement import decide_settlement

Settled = list[tuple[Settlement, Outcome]]


class ExchangeSession:
    """What a worker hands in and asks for, and what it is given."""

    def __init__(self, claims: Claims, *, name: str) -> None:
        self._claims = claims
        self._name = name
        #: The server was told whose worker this is.
        self._described = False
        self._under_way: tuple[ExchangeRequest, Settled] | None = None

    @property
    def worker_id(self) -> bytes:
        """How Redis knows this worker."""
        return self._claims.worker_id

    @property
    def in_flight(self) -> bool:
        """Whether an exchange is to be answered before there can be another."""
        return self._under_way is not None

    @property
    def settling(self) -> list[bytes]:
        """The leases whose outcomes are under way."""
        return [settlement.claim.lease for settlement, _ in self._under_way[1]] if self._under_way else []

    def prepare(
        self,
        *,
        queues: Sequence[str],
        want: int,
        strict: bool,
        may_recover: bool = True,
        ended: Sequence[tuple[Claim, Outcome]] = (),
    ) -> None:
        """Make the next exchange; `exchange()` sends it."""
        settled = [(decide_settlement(claim, outcome, worker=self._name), outcome) for claim, outcome in ended]
        exchange = self._claims.prepare(
            queues=queues,
            want=want,
            settlements=[settlement for settlement, _ in settled],
            strict=strict,
            may_recover=may_recover,
            worker_name="" if self._described else self._name,
        )
        self._under_way = exchange, settled

    def send_blocking(self, **asks: Any) -> ScriptCall:
        """Make the next exchange one that hands nothing in; returns its call, to be sent behind a blocking pop."""
        exchange = self._claims.prepare(worker_name="" if self._described else self._name, blocking=True, **asks)
        self._under_way = exchange, []
        return self._claims.pack(exchange)

    def cancel_blocking(self) -> None:
        """Make the next `exchange()` return what the armed exchange claimed, or prevent it from claiming anything."""
        assert self._under_way is not None
        exchange, _ = self._under_way
        # Redis carries out the first that has its number: the armed one, or the one that is sent now and takes nothing.
        exchange.call, exchange.want = None, 0

    def exchange(self, ended: OutcomeBuffer) -> tuple[ExchangeReply, Settled]:
        """Return what the exchange under way brought, and what it settled. Raises `StoreError`s.

        A stale one is given up: the outcomes go back to where they came from, to be handed in by another.
        """
        assert self._under_way is not None
        exchange, settled = self._under_way
        try:
            answer = self._claims.settle_and_claim(exchange)
        except StaleExchange:
            ended.restore((settlement.claim, outcome) for settlement, outcome in settled)
            self._under_way = None
            raise
        except StoreError:
            if exchange.blocking:
                # Sent again after an outage, it would take claims whose leases count from before it.
                self.cancel_blocking()
            raise
        self._under_way = None
        # Told with the first exchange; a server that forgot this worker is told again.
        self._described = not answer.unknown_worker or not self._described
        return answer, settled
