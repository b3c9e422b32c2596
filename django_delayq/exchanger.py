"""Exchanger: one exchange in flight at a time; one whose answer was lost is sent again word for word."""

from collections.abc import Sequence
from typing import Any

from django_delayq.endings import Endings
from django_delayq.exceptions import StaleExchange
from django_delayq.job import Claim
from django_delayq.outcome import Outcome
from django_delayq.settling import settle
from django_delayq.store.call import Call
from django_delayq.store.claims import Claims
from django_delayq.store.exchange import Answer, Exchange, Settlement

Settled = list[tuple[Settlement, Outcome]]


class Exchanger:
    """What a worker hands in and asks for, and what it is given."""

    def __init__(self, claims: Claims, *, name: str) -> None:
        self._claims = claims
        self._name = name
        #: The server was told whose worker this is.
        self._described = False
        self._under_way: tuple[Exchange, Settled] | None = None
        self._armed: Exchange | None = None

    @property
    def code(self) -> bytes:
        """How Redis knows this worker."""
        return self._claims.worker

    @property
    def under_way(self) -> bool:
        """Whether an exchange is to be answered before there can be another."""
        return self._under_way is not None

    @property
    def settling(self) -> list[bytes]:
        """The leases whose outcomes are under way."""
        return [settlement.claim.lease for settlement, _ in self._under_way[1]] if self._under_way else []

    def prepare(
        self, *, queues: Sequence[str], want: int, strict: bool, ended: Sequence[tuple[Claim, Outcome]] = ()
    ) -> None:
        """Make the next exchange; `exchange()` sends it."""
        settled = [(settle(claim, outcome, worker=self._name), outcome) for claim, outcome in ended]
        self._under_way = self._make(settled, queues=queues, want=want, strict=strict), settled

    @property
    def owing(self) -> bool:
        """Whether what is under way hands outcomes in, or may take claims."""
        return self._under_way is not None and bool(self._under_way[1] or self._under_way[0].want)

    @property
    def promised(self) -> int:
        """How many claims the armed exchange may bring, which others have to leave it."""
        return int(self._armed is not None)

    def arm(self, *, queues: Sequence[str], strict: bool) -> Call:
        """Make an exchange that waits in Redis behind a bell, and takes a claim when that rings; returns its call.

        One claim, the rest is asked for when it came: it rings for others then, and a worker that Redis does not know
        to be frozen or cut off keeps one job waiting, not many. Until it has fired there may be other exchanges.
        """
        self._armed = self._make([], queues=queues, want=1, strict=strict, armed=True)
        return self._claims.pack(self._armed)

    def fired(self) -> None:
        """Make it the exchange under way: the bell rang."""
        # Whoever listens has none under way: a loop does not listen while its exchange is to be sent again.
        assert self._under_way is None
        if self._armed is not None:
            self._under_way, self._armed = (self._armed, []), None

    def disarm(self) -> bool:
        """Cancel what is armed: the next `exchange()` tells what it had claimed, or makes sure that it never will.

        False where nothing is armed; nothing is done while another exchange is under way.
        """
        if self._armed is None or self._under_way is not None:
            return False
        self._claims.disarm(self._armed)
        self.fired()
        return True

    def exchange(self, ended: Endings) -> tuple[Answer, Settled]:
        """Return what the exchange under way brought, and what it settled. Raises `StoreError`s.

        A stale one is given up: the outcomes go back to where they came from, to be handed in by another.
        """
        assert self._under_way is not None
        exchange, settled = self._under_way
        try:
            answer = self._claims.exchange(exchange)
        except StaleExchange:
            ended.put_back((settlement.claim, outcome) for settlement, outcome in settled)
            self._under_way = None
            raise
        self._under_way = None
        # Told with the first exchange; a server that forgot this worker is told again.
        self._described = not answer.first or not self._described
        return answer, settled

    def _make(self, settled: Settled, *, armed: bool = False, **asks: Any) -> Exchange:
        return self._claims.prepare(
            settlements=[settlement for settlement, _ in settled],
            description="" if self._described else self._name,
            armed=armed,
            **asks,
        )
