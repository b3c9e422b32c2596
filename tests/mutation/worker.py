"""Mutants of worker, each with the tests of which one must fail."""

from tests.stateful.mutations import Mutation

at = Mutation.at

GIVEN_BACK = "tests/integration/test_given_back.py"
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
        "            self.given_back()\n",
        "            pass\n",
    ): (GIVEN_BACK,),
    at(
        "a process whose jobs were given back waits for its dispatcher",
        "management/commands/run_worker.py",
        "if child and shutdown.hurries:",
        "if child and shutdown.hurries and child.is_running(wait=1.0):",
    ): (GIVEN_BACK,),
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
        "        self._until = monotonic() + _OTHERS\n",
        "",
    ): (STARTING, GIVEN_BACK),
    at(
        "a worker whose heartbeats died goes on",
        "worker/worker.py",
        "        self._held.check()\n",
        "",
    ): ("tests/integration/test_user_code.py",),
    at(
        "a worker sleeps while its heartbeats die",
        "worker/leases.py",
        "            self._tell_ended()\n",
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
        "            if bell and not wanted:\n                self.notify_others()\n",
        "",
    ): ("tests/integration/store/test_queue_listener.py",),
    at(
        "a worker is full as soon as another shard's fills the pool",
        "worker/prefetch.py",
        "self.held < self.size or self.mine < self.share",
        "self.held < self.size",
    ): ("tests/unit/test_prefetch.py", "tests/integration/test_busy_shard.py"),
    at(
        "a worker takes ahead whatever its rivals want",
        "worker/prefetch.py",
        "max(self.share, self.target // (1 + self.rivals)) - self.mine",
        "self.target - self.mine",
    ): ("tests/unit/test_prefetch.py",),
    at(
        "an attempt ends when Redis is told of it",
        "worker/settlement.py",
        "return _at_us(claim, monotonic()) if outcome.began is None else",
        "return _at_us(claim, monotonic()) if outcome else",
    ): ("tests/unit/test_settlement.py",),
    at(
        "a coroutine that is cut off did not run",
        "worker/pools/asyncio.py",
        "    outcome = Outcome(kind=ending, error=error)\n    return outcome if entry.began is None",
        "    outcome = Outcome(kind=ending, error=error)\n    return outcome if True",
    ): ("tests/integration/test_each_claim_ends.py",),
    at(
        "a worker whose Redis is away keeps its share of the pool",
        "worker/worker.py",
        "            if self._prefetch.leave_room(wants=False, held=self._pool.held):\n                self.wake()\n",
        "",
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "a claim that came with the bell is never confirmed",
        "worker/blocking_claim.py",
        "            self._served.confirm([claim.lease for claim in answer.claims])\n",
        "            pass\n",
    ): (ARMED, KILLS),
    Mutation(
        "a claim that came with the bell is confirmed once its code runs",
        (
            ("worker/worker.py", "may_run and self._blocking_claim.confirm(answer):", "may_run:"),
            (
                "worker/worker.py",
                "                sleep(0)\n",
                "                sleep(0)\n            self._blocking_claim.confirm(answer)\n",
            ),
        ),
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "a worker that is stopped waits for its bell",
        "worker/worker.py",
        "wanted=self._takes and not",
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
        "self._pool.held >= self._pool.size or not answer.claimed",
        "not answer.claimed",
    ): (ARMED,),
    at(
        "what is disarmed takes claims all the same",
        "worker/exchange_session.py",
        "exchange.call, exchange.want = None, 0",
        "exchange.call = None",
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
        " or (held < self._size and any(each.deaf for each in others))",
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
