"""Worker: exchange outcomes for claims with one shard, and keep a pool busy with them."""

import os
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.dispatcher import Dispatcher
from django_delayq.exceptions import StoreError
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Ending, Outcome
from django_delayq.log import logger
from django_delayq.metrics import Tally
from django_delayq.processes.reporter import told_of
from django_delayq.processes.service import process_name
from django_delayq.store.claims import Claims
from django_delayq.store.exchange import Answer
from django_delayq.store.shard import Shard
from django_delayq.worker.blocking_claim import Armed
from django_delayq.worker.exchange_session import Exchanger
from django_delayq.worker.fallback_dispatcher import StandIn
from django_delayq.worker.held_claims import Held
from django_delayq.worker.outcome_buffer import Endings
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.prefetch import Pace
from django_delayq.worker.queue_listener import Served
from django_delayq.worker.recovered import Recovered
from django_delayq.worker.settlement import tell_all

#: Seconds a claim may wait in the pool before it is given back: short jobs must not wait behind a long one.
_UNBEGUN = 0.1
#: Seconds after GRACE to hand in the last outcomes, and to learn what was claimed last, where Redis is slow or away.
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
        sharing: list[Pace] | None = None,
    ) -> None:
        """`sharing` has the paces of all workers that use this pool; this one's is added."""
        self._config = config
        self._pool = pool
        self._stand_in = StandIn(dispatcher)
        self._sweep = sweep_us / SECOND_US
        self._drain = drain
        self._name = process_name()
        claims = door(os.urandom(8))
        self._exchanger = Exchanger(claims, name=self._name)
        self.tally = tally
        #: Called by other threads to end the loop's sleep; set by whoever runs this part.
        self.wake: Callable[[], object] = lambda: None
        self._held = Held(
            claims.heartbeat, pool.is_stuck, lease_us=config.lease_us, name=self._name, ended=lambda: self.wake()
        )
        self._recovered = Recovered(pool.recovery, wake=lambda: self.wake())
        #: Called once Redis has jobs back whose code still runs here; set by whoever can end the process.
        self.given_back: Callable[[], object] = lambda: None
        self._served = Served(shard, config.queues)
        self._armed = Armed(self._exchanger, self._served, pool, config)
        self._ended = Endings()
        self._pace = Pace(pool.size, holds=lambda: self._ended.expected, sharing=sharing)
        #: There may be work to take: a bell rang, or the last exchange left some behind.
        self._hungry = True
        self._sweep_at = 0.0
        self._stop_by: float | None = None
        self._quiet = False

    def step(self) -> float | None:
        """Exchange if there is reason to; return the seconds until there may be one, or None when ended."""
        try:
            return self._step()
        except StoreError:
            # While its Redis is away, the others of this pool need not wait for this worker.
            self._recovered.unanswered()
            if self._pace.leave_room(wants=False, held=self._pool.held):
                self.wake()
            raise

    def _step(self) -> float | None:
        self._held.check()
        # After a bell the answer of the armed exchange has arrived: a job waits, so everything else comes later.
        if not self._armed.has_rung():
            if self._stop_by is not None and monotonic() > self._stop_by + _LAST_WORD:
                logger.warning("%s ends without an answer of Redis; its jobs run again when leases lapse", self._name)
                return None
            if self._drain and self._stop_by is None:
                self._hungry = self._stand_in.promote() or self._hungry
            if left := self._armed.wait(wanted=self._takes and not self._recovered.due):
                return left
            if self._stop_by is None and not self._exchanger.under_way:
                self._served.refresh()
            self._release_unbegun()
            if self._hungry and not self._exchanger.under_way and not self._takes:
                self._hungry = False
                self._served.pass_on()
            self._give_back()
            if not self._exchanger.under_way:
                wait = self._wait()
                self._pace.wants = self._hungry and self._takes
                if wait is not None:
                    return None if self._has_ended() else wait
                self._prepare()
        answer, settled = self._exchanger.exchange(self._ended)
        self._take(answer)
        if self._pace.leave_room(wants=self._hungry, held=self._pool.held):
            self.wake()
        self._held.settled(settlement.claim.lease for settlement, _ in settled)
        if any(outcome.ending is Ending.INTERRUPTED for _, outcome in settled):
            self.given_back()
        tell_all(settled, lost=answer.lost, tally=self.tally)
        if answer.overdue and not self._drain:
            self._hungry = self._stand_in.promote() or self._hungry
        return 0.0

    def listen(self) -> int:
        """Listen to the bells while a slot is free and no work is known of; an idle worker arms its next exchange."""
        self._pace.deaf = not self._may_take()
        idle, wanted = not (self._held or self._ended or self._drain), not (self._hungry or self._pace.deaf)
        return self._armed.listen(idle=idle, wanted=wanted, until=min(self._sweep_at, self._stand_in.ask_at))

    def heard(self) -> None:
        """Read the bell that rang, or ring it again for a worker that has a slot free."""
        self._hungry = self._armed.hear(wanted=self._armed.waits or self._may_take()) or self._hungry

    @property
    def code(self) -> bytes:
        """How Redis knows this worker."""
        return self._exchanger.code

    def says(self) -> dict[str, Any]:
        """Return what the dashboard shows of this worker besides its process; called by another thread."""
        held = told_of(list(self._held), queues=self._config.queues)
        return {"slots": self._pool.size, **held, "quiet": self._quiet}

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
        return self._takes and self._pace.load(self._pool.held).has_slot

    def stop(self) -> None:
        """Claim no more; end when what runs has ended or GRACE is over; where nothing runs, or called again: now."""
        patient = self._stop_by is None and bool(self._held or self._ended or self._exchanger.settling)
        self._stop_by = monotonic() + (self._config.grace_us / SECOND_US if patient else 0.0)

    def close(self) -> None:
        """Let go of connections and threads."""
        self._held.close()
        self._served.close()
        self._stand_in.close()

    def _wait(self) -> float | None:
        """Return the seconds until there may be reason for an exchange, or None where one is due now."""
        now = monotonic()
        if self._ended and (self._stop_by is not None or self._ended.wait <= 0):
            return None
        if self._stop_by is not None:
            return max(0.0, self._stop_by - now)  # Nothing is claimed any more; a running job's end wakes us.
        room = not self._quiet and self._pace.load(self._pool.held).is_time
        ask_at = min(self._sweep_at, self._stand_in.ask_at)
        recovered = self._takes and self._recovered.due
        if room and (self._hungry or self._served.missed or recovered or now >= ask_at):
            return None
        waits = [ask_at - now if room else self._sweep, *([self._ended.wait] if self._ended else [])]
        if self._pool.unbegun:
            waits.append(_UNBEGUN - self._pool.waited())
        return max(0.0, min(waits))

    def _prepare(self) -> None:
        with self._ended.taken() as ended:
            self._pace.ran(*(outcome.run_us for _, outcome in ended if outcome.ending is not Ending.UNSTARTED))
            want = self._pace.asked = self._pace.load(self._pool.held).want if self._takes else 0
            served, recovers = self._served, want > 0 and self._recovered.may_come()
            self._exchanger.prepare(
                ended=ended, want=want, queues=served.queues, strict=served.strict, may_recover=recovers
            )
        self._held.leases.settling(self._exchanger.settling)

    def _take(self, answer: Answer) -> None:
        may_run = self._recovered.told(answer)
        self._held.add(answer.claims)
        self._ended.expect(len(answer.claims))
        if self._takes and may_run and self._armed.confirm(answer):
            was_idle = not self._pool.held
            self._pool.submit(answer.claims, self)
            if was_idle and answer.claims:
                # A thread of the pool waits for the interpreter, which this one would keep for another 80 µs.
                sleep(0)
        else:
            for claim in answer.claims:
                self.finished(claim, UNSTARTED)
        if answer.asked:
            self._hungry, self._served.missed = False, False
            self._sweep_at = monotonic() + self._sweep
        news = self._served.compare(answer.queues_version)
        self._hungry = news or answer.more or self._hungry
        self._stand_in.told(answer.overdue_in_us)

    def may_begin(self, claim: Claim) -> bool:
        """Whether the claim's lease is surely still held; called by the pool right before its code begins."""
        return self._held.leases.begin(claim.lease)

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Take an outcome down; called by threads of the pool."""
        self._recovered.ended(claim)
        if self._ended.add(claim, outcome) or (self._hungry and self._pool.held <= self._pace.low):
            self.wake()

    def _release_unbegun(self) -> None:
        if self._pool.unbegun and (self._stop_by is not None or self._pool.waited() >= _UNBEGUN):
            # Before they are handed in: the same exchange would take them again.
            self._pace.stalled()
            self._pool.withdraw()

    def _give_back(self) -> None:
        """Once GRACE is over, settle what runs as interrupted, and release what waits for its own process to start."""
        if self._stop_by is not None and monotonic() >= self._stop_by:
            self._held.give_up(self._ended, self._pool, settling=self._exchanger.settling)

    def _has_ended(self) -> bool:
        idle = not self._ended and not self._exchanger.under_way
        if self._stop_by is not None:
            return idle and (not self._held or monotonic() >= self._stop_by)
        return idle and self._drain and not (self._hungry or self._pool.held or self._recovered.left)
