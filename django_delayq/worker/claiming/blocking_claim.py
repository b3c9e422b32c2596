"""Blocking claim: an idle worker's next request, which waits in Redis behind the blocking pop.

Redis does not read a command that follows a blocking pop until the pop ends. Then it runs the command at once, before
it replies to either. The worker receives its claim together with the notification, one round trip earlier.

The worker may be frozen or disconnected by then. So the claim is unconfirmed: if its lease expires, no attempt is
counted. The worker confirms the claim on the same connection before the job's code begins, and does not wait for the
reply.
"""

from collections.abc import Callable
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.exceptions import StoreError
from django_delayq.store.claims import ExchangeReply
from django_delayq.worker.claiming.queue_listener import QueueListener
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.pools.base import Pool

#: Shortest pop, in seconds, and that of an idle worker; and how late its reply may be (Redis ends a pop up to 0.1 s
#: late).
_SHORTEST_POP, _IDLE_POP, _LATE = 0.1, 60.0, 1.0


class BlockingClaim:
    """The blocking request of one worker. There is at most one, and never beside another request."""

    def __init__(
        self,
        session: ExchangeSession,
        queues: QueueListener,
        pool: Pool,
        config: WorkerConfig,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._session = session
        self._queues = queues
        self._pool = pool
        self._clock = clock
        #: Some proxies refuse a command that follows a blocking pop.
        self._enabled = config.claim_behind_pop
        #: Longest pop, in seconds, of a worker that is not idle.
        self._longest = config.lease_us / SECOND_US / 3
        #: Monotonic moment at which the pop ends.
        self._until = 0.0

    def wait(self, *, wanted: bool) -> float:
        """Return the seconds to wait for the notification, 0 if no request is blocking.

        Cancels the request if it is not `wanted` any more, or if its reply is overdue.
        """
        if self._session.in_flight is not InFlight.BLOCKING:
            return 0.0
        left = self._until + _LATE - self._clock()
        if wanted and left > 0 and not self._queues.wakeup_missed:
            return left
        self.cancel()
        return 0.0

    def sweep(self) -> int:
        """Find jobs whose notification was lost. Return the µs after which the next promotion is overdue.

        An idle worker sends this now and then, and its pop stays. The request is cancelled if its reply was lost, and
        if it does not name all queues any more. Raises `StoreError`.
        """
        try:
            reply = self._session.sweep(all_queues=self._queues.serves_all)
        except StoreError:
            self.cancel()
            raise
        if self._queues.mark_if_stale(reply.queues_version) or (reply.was_run and not self._queues.has_reply):
            self.cancel()
        return reply.overdue_in_us

    def listen(self, *, idle: bool, wanted: bool, until: float) -> int:
        """Listen for notifications until the monotonic moment `until`. If the worker is idle, send a request, too, and
        listen for a minute.

        The request claims at most one job. Other workers are woken for the remaining jobs, and a frozen worker holds
        back one job, not many. Returns the socket to wait on, or -1. Raises `StoreError`.
        """
        now = self._clock()
        if not (wanted and idle and self._enabled and self._session.in_flight is InFlight.NOTHING):
            block = max(_SHORTEST_POP, min(self._longest, until - now))
            return self._queues.listen(wanted=wanted, block=block)
        self._until = now + _IDLE_POP
        call = self._session.prepare_blocking(
            want=1,
            queues=self._queues.queues,
            strict=self._queues.strict,
            may_recover=self._pool.recovery is None,
        )
        try:
            return self._queues.listen(wanted=True, block=_IDLE_POP, behind=call)
        except StoreError:
            self.cancel()
            raise

    def consume_wakeup(self, *, wanted: bool) -> bool:
        """Read the reply of the pop; returns whether there may be work for this worker."""
        if self._session.in_flight is not InFlight.BLOCKING:
            return self._queues.consume_wakeup(wanted=wanted)
        try:
            notified = self._queues.consume_wakeup(wanted=True)
        except StoreError:
            self._session.cancel_blocking()
            raise
        self._session.in_flight = InFlight.REPLY
        return notified

    def confirm(self, reply: ExchangeReply) -> bool:
        """Confirm the claims of a reply. Returns False if they must be released: no slot or connection is left."""
        if not (reply.blocking and reply.claims):
            return True
        # Another worker of this pool may have filled it. A cancelled request has no connection left to confirm on.
        if self._pool.held >= self._pool.size or not reply.claimed:
            return False
        try:
            self._queues.confirm([claim.lease for claim in reply.claims])
        except StoreError:
            return False
        return True

    def cancel(self) -> None:
        """Cancel the blocking request by closing its connection, which may lose a notification."""
        self._queues.stop()
        self._session.cancel_blocking()
