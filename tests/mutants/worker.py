"""Mutants of worker, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at

GIVEN_BACK = "tests/integration/test_given_back.py"
STARTING = "tests/unit/test_starting.py"
ARMED = "tests/integration/store/test_armed.py"
KILLS = "tests/chaos/test_kills.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "outcomes that could not be handed in are lost",
        "endings.py",
        "            self.put_back(ended)\n",
        "",
    ): ("tests/unit/test_endings.py",),
    at(
        "a process whose jobs were given back takes its time",
        "worker.py",
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
        "management/shutdown.py",
        "        self._until = monotonic() + _OTHERS\n",
        "",
    ): (STARTING, GIVEN_BACK),
    at(
        "a worker whose heartbeats died goes on",
        "worker.py",
        "        self._held.check()\n",
        "",
    ): ("tests/integration/test_user_code.py",),
    at(
        "a worker sleeps while its heartbeats die",
        "held.py",
        "            self._tell_ended()\n",
        "            pass\n",
    ): ("tests/unit/test_held.py",),
    at(
        "a service takes the end of its heartbeats for a failed step",
        "held.py",
        "raise SystemExit(f",
        "raise RuntimeError(f",
    ): ("tests/unit/test_held.py",),
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
        "served.py",
        "            if bell and not wanted:\n                self.pass_on()\n",
        "",
    ): ("tests/integration/store/test_served.py",),
    at(
        "a worker is full as soon as another shard's fills the pool",
        "pace.py",
        "self.held < self.size or self.mine < self.share",
        "self.held < self.size",
    ): ("tests/unit/test_pace.py", "tests/integration/test_busy_shard.py"),
    at(
        "a worker takes ahead whatever its rivals want",
        "pace.py",
        "max(self.share, self.target // (1 + self.rivals)) - self.mine",
        "self.target - self.mine",
    ): ("tests/unit/test_pace.py",),
    at(
        "an attempt ends when Redis is told of it",
        "settling.py",
        "return _at_us(claim, monotonic()) if outcome.began is None else",
        "return _at_us(claim, monotonic()) if outcome else",
    ): ("tests/unit/test_settling.py",),
    at(
        "a coroutine that is cut off did not run",
        "pools/loop.py",
        "    outcome = Outcome(ending=ending, error=error)\n    return outcome if entry.began is None",
        "    outcome = Outcome(ending=ending, error=error)\n    return outcome if True",
    ): ("tests/integration/test_each_claim_ends.py",),
    at(
        "a worker whose Redis is away keeps its share of the pool",
        "worker.py",
        "            if self._pace.leave_room(wants=False, held=self._pool.held):\n                self.wake()\n",
        "",
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "a claim that came with the bell is never confirmed",
        "armed.py",
        "            self._served.confirm([claim.lease for claim in answer.claims])\n",
        "            pass\n",
    ): (ARMED, KILLS),
    PlantedBug(
        "a claim that came with the bell is confirmed once its code runs",
        (
            ("worker.py", "may_run and self._armed.confirm(answer):", "may_run:"),
            (
                "worker.py",
                "                sleep(0)\n",
                "                sleep(0)\n            self._armed.confirm(answer)\n",
            ),
        ),
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "a worker that is stopped waits for its bell",
        "worker.py",
        "wanted=self._takes and not",
        "wanted=not",
    ): ("tests/integration/test_one_outcome.py",),
    at(
        "the answer of a mark is taken for a bell",
        "store/waker.py",
        "            while self._untold:\n",
        "            while False:\n",
    ): ("tests/integration/store/test_waker.py",),
    at(
        "what is armed keeps claims for a pool that others have filled",
        "armed.py",
        "self._pool.held >= self._pool.size or not answer.asked",
        "not answer.asked",
    ): (ARMED,),
    at(
        "what is disarmed takes claims all the same",
        "exchanger.py",
        "exchange.call, exchange.want = None, 0",
        "exchange.call = None",
    ): (ARMED,),
    at(
        "an exchange is armed where the setting forbids it",
        "armed.py",
        "idle and self._enabled and",
        "idle and",
    ): (ARMED,),
    at(
        "a worker that does not listen is not told of a free slot",
        "pace.py",
        " or (held < self._size and any(each.deaf for each in others))",
        "",
    ): ("tests/unit/test_pace.py",),
    at(
        "a job that did not begin waits for others to be handed in",
        "endings.py",
        "            if outcome.ending is Ending.UNSTARTED:\n",
        "            if False:\n",
    ): ("tests/unit/test_endings.py",),
    at(
        "a forked process keeps its parent's pop alive",
        "store/waker.py",
        "os.register_at_fork(after_in_child=_after_fork)\n",
        "",
    ): ("tests/integration/store/test_waker.py",),
}
