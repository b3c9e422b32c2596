"""Armed: an idle worker's next exchange, which waits in Redis behind the blocking pop and is carried out with the bell.

Redis keeps what is sent behind a blocking pop unread, and carries it out the moment the pop ends, before it answers
either. The worker so has its claim with the bell, a round trip earlier: a job starts after 1.55 ms in place of 1.81.

The worker may be frozen or cut off by then. So the claim is unconfirmed: if its lease lapses, no attempt is counted.
The worker confirms it on the same connection before its code begins, without waiting for the answer.
"""

from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.config import WorkerConfig
from django_delayq.exceptions import StoreError
from django_delayq.exchanger import Exchanger
from django_delayq.pools.pool import Pool
from django_delayq.served import Served
from django_delayq.store.exchange import Answer

#: Seconds of a pop at least, and after its end in which its answer should be here: Redis ends one up to 0.1 s late.
_SHORTEST_POP, _LATE = 0.1, 1.0


class Armed:
    """The armed exchange of one worker; at most one, and none beside another exchange."""

    def __init__(self, exchanger: Exchanger, served: Served, pool: Pool, config: WorkerConfig) -> None:
        self._exchanger = exchanger
        self._served = served
        self._pool = pool
        #: Some proxies refuse what is sent behind a blocking pop.
        self._enabled = config.claim_behind_pop
        #: Seconds of a pop at most: the lease of what is taken counts from before it.
        self._longest = config.lease_us / SECOND_US / 3
        #: It was sent, and the pop in front of it has not ended.
        self.waits = False
        self._has_rung = False
        #: Monotonic moment at which the pop ends.
        self._until = 0.0

    def wait(self, *, wanted: bool) -> float:
        """Return the seconds to wait for the bell, 0 where nothing is armed.

        What is not wanted any more is disarmed, and so is what was not answered in time.
        """
        left = self._until + _LATE - monotonic()
        if self.waits and wanted and left > 0 and not self._served.missed:
            return left
        self.disarm()
        return 0.0

    def listen(self, *, idle: bool, wanted: bool, until: float) -> int:
        """Listen to the bells as `Served.listen()` does, until that moment; where the worker is idle, arm an exchange.

        It asks for one claim, the rest is asked for when that came: other workers are woken for it, and one that is
        frozen keeps back one job, not many. Raises `StoreError`s.
        """
        now = monotonic()
        block = max(_SHORTEST_POP, min(self._longest, until - now))
        bell = self._served.listen(wanted=wanted, block=block)
        if wanted and idle and self._enabled and not self._exchanger.under_way:
            served, self._until = self._served, now + block
            call = self._exchanger.arm(
                want=1, queues=served.queues, strict=served.strict, may_recover=self._pool.recovery is None
            )
            self.waits = True
            try:
                self._served.send_behind(call)
            except StoreError:
                self.disarm()
                raise
        return bell

    def hear(self, *, wanted: bool) -> bool:
        """Read the bell as `Served.hear()` does; the answer of what was armed is to be read next."""
        was_armed, self.waits = self.waits, False
        try:
            heard = self._served.hear(wanted=wanted or was_armed)
        except StoreError:
            if was_armed:
                self._exchanger.disarm()
            raise
        self._has_rung = was_armed
        return heard

    def has_rung(self) -> bool:
        """Return whether the pop in front of an armed exchange has ended since this was last asked."""
        has_rung, self._has_rung = self._has_rung, False
        return has_rung

    def disarm(self) -> None:
        """Take back what waits; the next `Exchanger.exchange()` tells what it had claimed. A bell may be missed."""
        if self.waits:
            self.waits = False
            self._served.deafen()
            self._exchanger.disarm()

    def confirm(self, answer: Answer) -> bool:
        """Confirm the claims of an answer; False where they are to be given back: no slot is left, or no connection."""
        if not (answer.armed and answer.claims):
            return True
        # Of the workers that share a pool another may have filled it. What was disarmed has no connection any more.
        if self._pool.held >= self._pool.size or not answer.asked:
            return False
        try:
            self._served.confirm([claim.lease for claim in answer.claims])
        except StoreError:
            return False
        return True
