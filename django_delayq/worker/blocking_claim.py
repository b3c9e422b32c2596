"""Armed: an idle worker's next exchange, which waits in Redis behind the blocking pop and is carried out with the bell.

Redis does not read a command that follows a blocking pop until the pop ends. Then it runs the command at once, before
it replies to either. The worker receives its claim together with the bell, one round trip earlier.

The worker may be frozen or disconnected by then. So the claim is unconfirmed: if its lease lapses, no attempt is
counted. The worker confirms the claim on the same connection before the job's code begins, and does not wait for the
reply.
"""

from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.exceptions import StoreError
from django_delayq.store.claims import ExchangeReply
from django_delayq.worker.exchange_session import ExchangeSession
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.queue_listener import QueueListener

#: Shortest pop, in seconds; and how late its reply may be (Redis ends a pop up to 0.1 s late).
_SHORTEST_POP, _LATE = 0.1, 1.0


class BlockingClaim:
    """The armed exchange of one worker; at most one, and none beside another exchange."""

    def __init__(self, exchanger: ExchangeSession, served: QueueListener, pool: Pool, config: WorkerConfig) -> None:
        self._exchanger = exchanger
        self._served = served
        self._pool = pool
        #: Some proxies refuse a command that follows a blocking pop.
        self._enabled = config.claim_behind_pop
        #: Longest pop, in seconds. The lease of the claim counts from the start of the pop.
        self._longest = config.lease_us / SECOND_US / 3
        #: The exchange was sent, and the pop before it has not ended.
        self.waits = False
        self._has_rung = False
        #: Monotonic moment at which the pop ends.
        self._until = 0.0

    def wait(self, *, wanted: bool) -> float:
        """Return the seconds to wait for the bell, 0 if no exchange is armed.

        Disarms the exchange if it is not `wanted` any more, or if its reply is overdue.
        """
        left = self._until + _LATE - monotonic()
        if self.waits and wanted and left > 0 and not self._served.wakeup_missed:
            return left
        self.cancel()
        return 0.0

    def listen(self, *, idle: bool, wanted: bool, until: float) -> int:
        """Listen to the bells until the monotonic moment `until`, and arm an exchange if the worker is idle.

        The exchange asks for one claim only. Other workers are woken for the remaining jobs, and a frozen worker holds
        back one job, not many. Returns the socket to wait on, or -1. Raises `StoreError`.
        """
        now = monotonic()
        block = max(_SHORTEST_POP, min(self._longest, until - now))
        bell = self._served.listen(wanted=wanted, block=block)
        if wanted and idle and self._enabled and not self._exchanger.in_flight:
            served, self._until = self._served, now + block
            call = self._exchanger.send_blocking(
                want=1, queues=served.queues, strict=served.strict, may_recover=self._pool.recovery is None
            )
            self.waits = True
            try:
                self._served.send_behind(call)
            except StoreError:
                self.cancel()
                raise
        return bell

    def consume_wakeup(self, *, wanted: bool) -> bool:
        """Return whether a notification arrived. If an exchange was armed, its reply is the next one to read."""
        was_armed, self.waits = self.waits, False
        try:
            heard = self._served.consume_wakeup(wanted=wanted or was_armed)
        except StoreError:
            if was_armed:
                self._exchanger.cancel_blocking()
            raise
        self._has_rung = was_armed
        return heard

    def is_ready(self) -> bool:
        """Return whether an armed exchange was carried out since the last call."""
        has_rung, self._has_rung = self._has_rung, False
        return has_rung

    def cancel(self) -> None:
        """Cancel the armed exchange by closing its connection, which may lose a bell.

        The next `Exchanger.exchange()` returns the claim if the exchange was carried out before.
        """
        if self.waits:
            self.waits = False
            self._served.stop()
            self._exchanger.cancel_blocking()

    def confirm(self, answer: ExchangeReply) -> bool:
        """Confirm the claims of an answer. Returns False if they must be given back: no slot or connection is left."""
        if not (answer.blocking and answer.claims):
            return True
        # Another worker of this pool may have filled it. A disarmed exchange has no connection left to confirm on.
        if self._pool.held >= self._pool.size or not answer.claimed:
            return False
        try:
            self._served.confirm([claim.lease for claim in answer.claims])
        except StoreError:
            return False
        return True
