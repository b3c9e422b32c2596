"""Mutants of worker, each with the tests of which one must fail."""

from tests.stateful.mutations import Mutation

at = Mutation.at

SHUTDOWN = "tests/integration/test_shutdown.py"
STARTING = "tests/unit/test_starting.py"
ARMED = "tests/integration/store/test_blocking_claim.py"
KILLS = "tests/chaos/test_kills.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "outcomes that could not be handed in are lost",
        "worker/outcome_buffer.py",
        "            self.restore(ended)\n",
        "",
    ): ("tests/unit/test_outcome_buffer.py",),
    at(
        "a process whose jobs were given back takes its time",
        "worker/worker.py",
        "            self.on_interrupted()\n",
        "            pass\n",
    ): (SHUTDOWN,),
    at(
        "a process whose jobs were given back waits for its dispatcher",
        "management/commands/run_worker.py",
        "if child and shutdown.has_deadline:",
        "if child and shutdown.has_deadline and child.is_running(wait=1.0):",
    ): (SHUTDOWN,),
    at(
        "a service that nobody stopped ends alone",
        "management/starting.py",
        "                stop()\n",
        "                pass\n",
    ): (STARTING,),
    at(
        "a broken log ends a start that waits",
        "management/starting.py",
        "                logger.warning(\n",
        "                logger.logger.warning(\n",
    ): (STARTING,),
    at(
        "a service that hangs is waited for though jobs were given back",
        "processes/shutdown.py",
        "        self._deadline = monotonic() + _INTERRUPTED_TIMEOUT\n",
        "",
    ): (STARTING, SHUTDOWN),
    at(
        "a worker whose heartbeats died goes on",
        "worker/worker.py",
        "        self._held.check()\n",
        "",
    ): ("tests/integration/test_user_code.py",),
    at(
        "a worker sleeps while its heartbeats die",
        "worker/leases.py",
        "            self._on_ended()\n",
        "            pass\n",
    ): ("tests/unit/test_held_claims.py",),
    at(
        "a service takes the end of its heartbeats for a failed step",
        "worker/leases.py",
        "raise SystemExit(f",
        "raise RuntimeError(f",
    ): ("tests/unit/test_held_claims.py",),
    at(
        "a log handler can end any thread",
        "log.py",
        "        except BaseException as error:\n",
        "        except Exception as error:\n",
    ): ("tests/unit/test_log.py",),
    at(
        "a log handler's thread keeps Ctrl-C from the program",
        "log.py",
        "                raise\n",
        "                pass\n",
    ): ("tests/unit/test_log.py",),
    at(
        "a bell that a full worker heard is lost",
        "worker/queue_listener.py",
        "            if notification and not wanted:\n                self.notify_others()\n",
        "",
    ): ("tests/integration/store/test_queue_listener.py",),
    at(
        "a worker is full as soon as another shard's fills the pool",
        "worker/prefetch.py",
        "self.held < self.size or self.own < self.share",
        "self.held < self.size",
    ): ("tests/unit/test_prefetch.py", "tests/integration/test_busy_shard.py"),
    at(
        "a worker takes ahead whatever others want",
        "worker/prefetch.py",
        "max(self.share, self.target // (1 + self.contenders)) - self.own",
        "self.target - self.own",
    ): ("tests/unit/test_prefetch.py",),
    at(
        "an attempt ends when Redis is told of it",
        "worker/settlement.py",
        "return _at_us(claim, monotonic()) if outcome.began is None else",
        "return _at_us(claim, monotonic()) if outcome else",
    ): ("tests/unit/test_settlement.py",),
    at(
        "the outcome of an interrupted coroutine has no run time",
        "worker/pools/claim_queue.py",
        "return outcome if self.began is None else timed(outcome, self.began)",
        "return outcome",
    ): ("tests/integration/each_claim_ends/test_asyncio.py",),
    at(
        "a worker whose Redis is away keeps its share of the pool",
        "worker/worker.py",
        "            if self._prefetch.request_ended(wants_more=False, held=self._pool.held):\n"
        "                self.wake()\n",
        "",
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "a claim that came with the bell is never confirmed",
        "worker/blocking_claim.py",
        "            self._queues.confirm([claim.lease for claim in reply.claims])\n",
        "            pass\n",
    ): (ARMED, KILLS),
    Mutation(
        "a claim that came with the bell is confirmed once its code runs",
        (
            ("worker/worker.py", "may_run and self._blocking_claim.confirm(reply):", "may_run:"),
            (
                "worker/worker.py",
                "                sleep(0)\n",
                "                sleep(0)\n            self._blocking_claim.confirm(reply)\n",
            ),
        ),
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "a worker that is stopped waits for its bell",
        "worker/worker.py",
        "wanted=self.phase.claims and not",
        "wanted=not",
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "the reply to a confirmation is taken for a notification",
        "store/client/blocking_listener.py",
        "            while self._unread_replies:\n",
        "            while False:\n",
    ): ("tests/integration/store/test_blocking_listener.py",),
    at(
        "a blocking exchange keeps claims for a pool that others have filled",
        "worker/blocking_claim.py",
        "self._pool.held >= self._pool.size or not reply.claimed",
        "not reply.claimed",
    ): (ARMED,),
    at(
        "what is disarmed takes claims all the same",
        "worker/exchange_session.py",
        "request.call, request.want = None, 0",
        "request.call = None",
    ): (ARMED,),
    at(
        "an exchange is chained although the setting forbids it",
        "worker/blocking_claim.py",
        "idle and self._enabled and",
        "idle and",
    ): (ARMED,),
    at(
        "a worker that does not listen is not told of a free slot",
        "worker/prefetch.py",
        " or (held < self._size and any(each.is_full for each in others))",
        "",
    ): ("tests/unit/test_prefetch.py",),
    at(
        "a job that did not begin waits for others to be handed in",
        "worker/outcome_buffer.py",
        "            if outcome.kind is OutcomeKind.UNSTARTED:\n",
        "            if False:\n",
    ): ("tests/unit/test_outcome_buffer.py",),
    at(
        "a forked process keeps its parent's pop alive",
        "store/client/blocking_listener.py",
        "os.register_at_fork(after_in_child=_after_fork)\n",
        "",
    ): ("tests/integration/store/test_blocking_listener.py",),
}
