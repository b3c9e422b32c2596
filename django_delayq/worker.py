"""Worker: exchange outcomes for claims with one shard, and keep a pool busy with them.

One exchange is in flight at a time; one whose answer was lost is sent again word for word until it is answered.
"""

import os
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.config import WorkerConfig
from django_delayq.dispatcher import Dispatcher
from django_delayq.endings import Endings
from django_delayq.exceptions import StaleExchange
from django_delayq.job import Claim
from django_delayq.leases import Leases
from django_delayq.outcome import UNSTARTED, Ending, Outcome
from django_delayq.pace import Pace
from django_delayq.pools.pool import Pool
from django_delayq.presence import told_of
from django_delayq.served import Served
from django_delayq.service import Service, process_name
from django_delayq.settling import settle, tell
from django_delayq.signals import logger
from django_delayq.stand_in import StandIn
from django_delayq.store.claims import Answer, Claims, Exchange, Settlement
from django_delayq.store.shard import Shard
from django_delayq.tally import Tally

#: Seconds a claim may wait in the pool before it is given back: short jobs must not wait behind a long one.
_UNBEGUN = 0.1
#: Seconds after GRACE to hand in the last outcomes, where Redis is slow or away.
_LAST_WORD = 5.0


class Worker:
    """The worker of one shard; several may share a pool."""

    kind = "worker"

    def __init__(
        self,
        *,
        shard: Shard,
        door: Callable[[bytes], Claims],
        config: WorkerConfig,
        pool: Pool,
        dispatcher: Dispatcher,
        tally: Tally,
        sweep_us: int,
        drain: bool = False,
    ) -> None:
        self._config = config
        self._pool = pool
        self._stand_in = StandIn(dispatcher)
        self._sweep = sweep_us / SECOND_US
        self._drain = drain
        self._name = process_name()
        self._claims = door(os.urandom(8))
        self.tally = tally
        self._leases = Leases(self._claims.heartbeat, lease_us=config.lease_us)
        self._pace = Pace(pool.size)
        #: Called by pool threads to end the loop's sleep; set by whoever runs this part.
        self.wake: Callable[[], object] = lambda: None
        self._served = Served(shard, config.queues)
        self._described = False
        self._ended = Endings()
        self._running: dict[bytes, Claim] = {}
        self._sent: tuple[Exchange, list[tuple[Settlement, Outcome]]] | None = None
        #: There may be work to take: a bell rang, or the last exchange left some behind.
        self._hungry = True
        self._sweep_at = 0.0
        self._stop_by: float | None = None
        self._quiet = False
        # In a thread of its own: heartbeats must not wait for an exchange, nor for user code.
        # Nor may they sleep off an outage for longer than the lease of what is claimed right after it.
        longest_wait = config.lease_us / SECOND_US / 3
        self._heartbeats = Service(self._leases, name=f"Heartbeats of {self._name}", longest_wait=longest_wait)
        threading.Thread(target=self._heartbeats.run, name="delayq-heartbeats", daemon=True).start()

    def step(self) -> float | None:
        """Exchange if there is reason to; return the seconds until there may be one, or None when ended."""
        if self._stop_by is not None and monotonic() > self._stop_by + _LAST_WORD:
            logger.warning("%s could not hand in its last outcomes; their leases will lapse", self._name)
            return None
        if self._drain and self._stop_by is None:
            self._hungry = self._stand_in.promote() or self._hungry
        self._served.refresh()
        self._release_unbegun()
        if self._hungry and self._sent is None and not self._takes:
            self._hungry = False
            self._served.pass_on()
        if self._stop_by is not None:
            self._give_back(self._stop_by)
        if self._sent is None:
            wait = self._wait()
            if wait is not None:
                return None if self._has_ended() else wait
            self._sent = self._prepare()
        exchange, settled = self._sent
        try:
            answer = self._claims.exchange(exchange)
        except StaleExchange:
            # What jobs ended by is handed in again, by another exchange.
            self._ended.put_back((settlement.claim, outcome) for settlement, outcome in settled)
            self._sent = None
            raise
        self._sent = None
        self._take(answer)
        self._conclude(answer, settled)
        if answer.overdue and not self._drain:
            self._hungry = self._stand_in.promote() or self._hungry
        return 0.0

    def listen(self) -> int:
        """Listen to the bells while a slot is free and no work is known of."""
        return self._served.listen(wanted=not self._hungry and self._may_take())

    def heard(self) -> None:
        """Take a bell down, or ring it again for somebody who has a slot free."""
        self._hungry = self._served.hear(wanted=self._may_take()) or self._hungry

    @property
    def code(self) -> bytes:
        """How Redis knows this worker."""
        return self._claims.worker

    def says(self) -> dict[str, Any]:
        """Return what the dashboard shows of this worker besides its process; called by another thread."""
        claims = list(self._running.values())
        return {"slots": self._pool.size, **told_of(claims, queues=self._config.queues), "quiet": self._quiet}

    def quiet(self, asked: bool) -> None:
        """Take no more jobs, or take them again; called by another thread."""
        if asked != self._quiet:
            logger.info("%s %s", self._name, "was asked to take no more jobs" if asked else "takes jobs again")
            self._quiet, self._hungry = asked, True
            self.wake()

    @property
    def _takes(self) -> bool:
        return self._stop_by is None and not self._quiet

    def _may_take(self) -> bool:
        return self._takes and self._pool.held < self._pool.size

    def stop(self) -> None:
        """Claim no more and end when what runs has ended or GRACE is over; called again: give back at once."""
        first = self._stop_by is None
        self._stop_by = monotonic() + (self._config.grace_us / SECOND_US if first else 0.0)

    def close(self) -> None:
        """Let go of connections and threads."""
        self._heartbeats.stop()
        self._served.close()
        self._stand_in.close()

    def _wait(self) -> float | None:
        """Return the seconds until there may be reason for an exchange, or None where one is due now."""
        now, held = monotonic(), self._pool.held
        if self._ended and (self._stop_by is not None or self._ended.wait <= 0):
            return None
        if self._stop_by is not None:
            # Nothing is claimed any more; a running job's end wakes us.
            return max(0.0, self._stop_by - now)
        # Ask when a slot would wait, else when there is room for a batch worth a round trip.
        room = not self._quiet and (held < self._pool.size or held <= self._pace.low)
        ask_at = min(self._sweep_at, self._stand_in.ask_at)
        if room and (self._hungry or self._served.missed or now >= ask_at):
            return None
        waits = [ask_at - now if room else self._sweep, *([self._ended.wait] if self._ended else [])]
        if self._pool.unbegun:
            waits.append(_UNBEGUN - self._pool.waited())
        return max(0.0, min(waits))

    def _prepare(self) -> tuple[Exchange, list[tuple[Settlement, Outcome]]]:
        ended = self._ended.take()
        for _, outcome in ended:
            if outcome.ending is not Ending.UNSTARTED:
                self._pace.ran(outcome.run_us)
        settled = [(settle(claim, outcome, worker=self._name), outcome) for claim, outcome in ended]
        self._leases.settling(settlement.claim.lease for settlement, _ in settled)
        exchange = self._claims.prepare(
            queues=self._served.queues,
            want=self._pace.want(self._pool.held) if self._takes else 0,
            settlements=[settlement for settlement, _ in settled],
            strict=self._served.strict,
            description="" if self._described else self._name,
        )
        return exchange, settled

    def _take(self, answer: Answer) -> None:
        # Told with the first exchange; a server that forgot this worker is told again.
        self._described = not answer.first or not self._described
        self._hungry, self._served.missed = answer.more, False
        self._sweep_at = monotonic() + self._sweep
        self._stand_in.asked()
        if self._served.counted(answer.queue_count, flushed=answer.first):
            self._hungry = True
        self._leases.add(answer.claims)
        for claim in answer.claims:
            self._running[claim.lease] = claim
        for claim in answer.claims:
            if self._stop_by is None:
                self._pool.submit(claim, self)
            else:
                self.finished(claim, UNSTARTED)

    def may_begin(self, claim: Claim) -> bool:
        """Whether the claim's lease is surely still held; asked by threads of the pool."""
        return self._leases.trusts(claim.lease)

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Take an outcome down; called by threads of the pool."""
        if self._ended.add(claim, outcome) or (self._hungry and self._pool.held <= self._pace.low):
            self.wake()

    def _conclude(self, answer: Answer, settled: Sequence[tuple[Settlement, Outcome]]) -> None:
        self._leases.drop(settlement.claim.lease for settlement, _ in settled)
        for settlement, outcome in settled:
            self._running.pop(settlement.claim.lease, None)
            tell(settlement, outcome, lost=settlement.claim.lease in answer.lost, tally=self.tally)

    def _release_unbegun(self) -> None:
        if self._pool.unbegun and (self._stop_by is not None or self._pool.waited() >= _UNBEGUN):
            # Before they are handed in: the same exchange would take them again.
            self._pace.stalled()
            self._pool.withdraw()

    def _give_back(self, stop_by: float) -> None:
        """Once GRACE is over, settle what still runs as interrupted; its code ends with the process."""
        if monotonic() < stop_by:
            return
        ended = self._ended.leases()
        if self._sent is not None:
            ended |= {settlement.claim.lease for settlement, _ in self._sent[1]}
        self._pool.close()
        error = "The worker was stopped before the task ended."
        for lease, claim in list(self._running.items()):
            if lease not in ended:
                self._ended.add(claim, Outcome(ending=Ending.INTERRUPTED, error=error))
                del self._running[lease]

    def _has_ended(self) -> bool:
        idle = not self._ended and self._sent is None
        if self._stop_by is not None:
            return idle and (not self._running or monotonic() >= self._stop_by)
        return self._drain and idle and not self._hungry and not self._pool.held
