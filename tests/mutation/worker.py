"""Planned bugs of the worker, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at

SHUTDOWN = "tests/integration/processes/test_shutdown.py"
STARTING = "tests/unit/management/test_starting.py"
BLOCKING_CLAIM = "tests/integration/worker/test_blocking_claim.py"
LOGS = "tests/integration/logs"
DONE_LOG, DONE_LINES = "tests/unit/worker/test_done_log.py", "tests/integration/logs/test_done_lines.py"
KILLS = "tests/chaos/processes/test_kills.py"
EXPIRY = "tests/testing_helpers/test_expiry.py"
RUNSERVER = "tests/integration/commands/test_runserver.py"
FOREGROUND = "tests/integration/commands/operating/test_run.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "runserver runs jobs although DEBUG is off",
        "management/runserver.py",
        "if not is_debug():",
        "if False:",
    ): (RUNSERVER,),
    at(
        "every process that the reloader starts runs jobs",
        "apps.py",
        ' or sys.argv[1:2] != ["runserver"]',
        "",
    ): (RUNSERVER,),
    at(
        "a job that runs at Ctrl-C is not given back",
        "management/runserver.py",
        "atexit.register(self.stop, at_once=True)",
        "pass",
    ): (RUNSERVER,),
    at(
        "a reload does not wait for running jobs",
        "management/runserver.py",
        'if file_path.suffix == ".py":',
        "if False:",
    ): (RUNSERVER,),
    at(
        "a run in the foreground has the time limit of its job",
        "worker/foreground.py",
        "timeout_us=None, hard_timeout_us=None, expiry=None",
        "expiry=None",
    ): (FOREGROUND,),
    at("nothing renews the lease of a run in the foreground", "worker/foreground.py", "    heartbeats.start()\n", ""): (
        FOREGROUND,
    ),
    at(
        "Ctrl-C counts as a failure of the job",
        "worker/foreground.py",
        "by_person = bool(raised) and isinstance(raised[-1], _ENDED_BY_PERSON)",
        "by_person = False",
    ): (FOREGROUND,),
    at(
        "an expired job runs",
        "worker/execution.py",
        "    if job.expiry is not None and claim.has_expired(began):\n        return expired(claim)\n",
        "",
    ): (EXPIRY, "tests/integration/worker/pools/test_expired_jobs.py"),
    at(
        "an expired job is forwarded",
        "worker/execution.py",
        "    if job.expiry is not None and claim.has_expired(monotonic()):\n        return expired(claim)\n",
        "",
    ): ("tests/integration/worker/pools/test_expired_jobs.py",),
    at(
        "the expiry of a first attempt is that of the enqueueing host's clock",
        "job/job.py",
        "expiry.span_us is None or self.attempts != NO_ATTEMPTS",
        "True",
    ): ("tests/unit/job/test_expiry.py",),
    at(
        "a claim expires while it is fetched only",
        "job/job.py",
        "self.claimed_us + int((now - self.received_at) * SECOND_US) > expires_us",
        "self.claimed_us > expires_us",
    ): ("tests/unit/job/test_expiry.py", "tests/integration/worker/pools/test_expired_jobs.py"),
    at(
        "an expired job counts as done",
        "worker/settlement.py",
        "return state.value",
        'return "done"',
    ): ("tests/integration/worker/pools/test_expired_jobs.py",),
    at(
        "a job may have a moment before its due time",
        "task/options/expiry.py",
        "if expires.moment_us is not None and expires.moment_us <= due_us:",
        "if False:",
    ): (EXPIRY,),
    at(
        "outcomes that could not be sent are lost",
        "worker/outcome_buffer.py",
        "            self.restore(ended)\n",
        "",
    ): ("tests/unit/worker/test_outcome_buffer.py",),
    at(
        "a plain function under an async middleware runs in another thread than its job",
        "worker/execution.py",
        "is_async(func) else _call_from_loop(_call, func, job))",
        "is_async(func) else _ended(_call(func, job)))",
    ): ("tests/integration/middleware/test_run.py",),
    at(
        "already_done is called outside the middlewares",
        "worker/execution.py",
        "    return MiddlewareJob(\n        job,\n        *calls,\n",
        "    done = task.already_done\n"
        "    if done is not None and _call(done, job):\n"
        "        calls = (lambda: None), calls[1]\n"
        "    return MiddlewareJob(\n        job,\n        *calls,\n",
    ): ("tests/integration/middleware/test_run.py",),
    at(
        "a middleware's changes of its context reach the job",
        "middleware/job.py",
        "deepcopy(job.context) if job.context else {}",
        "job.context if job.context else {}",
    ): ("tests/integration/middleware/test_run.py",),
    at(
        "the variables of a task with sensitive arguments reach the log",
        "worker/failure.py",
        "        clear_variables(shown)\n",
        "        pass\n",
    ): (f"{LOGS}/test_sentry.py",),
    at(
        "the variables of the errors behind an exception reach the log",
        "worker/failure.py",
        "        left += filter(None, (each.__cause__, each.__context__))\n",
        "",
    ): (f"{LOGS}/test_sentry.py",),
    at(
        "a failed task's variables live until the garbage collector comes",
        "worker/execution.py",
        "would keep the variables of the task in memory.\n        del outcome\n",
        "would keep the variables of the task in memory.\n        pass\n",
    ): (f"{LOGS}/test_records.py",),
    at(
        "a child process pickles the exception of its task",
        "worker/pools/child.py",
        "if outcome.raised is not None:",
        "if False:",
    ): (f"{LOGS}/test_records.py",),
    at(
        "a dead job of Django's @task has two exceptions",
        "backend/django_task.py",
        "            error = error or JobFailed(attempts.last_error)\n",
        "            error = JobFailed(attempts.last_error)\n",
    ): (f"{LOGS}/test_sentry.py",),
    at(
        "a process that interrupted its jobs exits without a deadline",
        "worker/worker.py",
        "            self.on_interrupted()\n",
        "            pass\n",
    ): (SHUTDOWN,),
    at(
        "a process that interrupted its jobs waits for its dispatcher",
        "management/commands/run_worker.py",
        "if child and shutdown.has_deadline:",
        "if child and shutdown.has_deadline and child.is_running(wait=1.0):",
    ): (SHUTDOWN,),
    at(
        "a service that ends by itself does not stop the others",
        "management/starting.py",
        "                stop()\n",
        "                pass\n",
    ): (STARTING,),
    at(
        "a broken log handler ends a process that waits for Redis",
        "management/starting.py",
        "                logger.warning(\n",
        "                logger.logger.warning(\n",
    ): (STARTING,),
    at(
        "a process that interrupted its jobs waits for a hanging service",
        "processes/shutdown.py",
        "        self._deadline = monotonic() + _INTERRUPTED_TIMEOUT\n",
        "",
    ): (STARTING, SHUTDOWN),
    at(
        "a worker ignores the end of its heartbeats",
        "worker/worker.py",
        "        self._heartbeats.check()\n",
        "",
    ): ("tests/integration/worker/test_user_code.py",),
    at(
        "the end of the heartbeats does not wake the worker",
        "worker/claiming/heartbeats.py",
        "            self._on_ended()\n",
        "            pass\n",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "a service treats the end of its heartbeats as a failed step",
        "worker/claiming/heartbeats.py",
        "raise SystemExit(f",
        "raise RuntimeError(f",
    ): ("tests/unit/worker/test_held_claims.py",),
    at(
        "a log handler can end any thread",
        "logs.py",
        "        except BaseException as error:\n",
        "        except Exception as error:\n",
    ): ("tests/unit/test_log.py",),
    at(
        "a log handler swallows Ctrl-C",
        "logs.py",
        "                raise\n",
        "                pass\n",
    ): ("tests/unit/test_log.py",),
    at(
        "a full worker does not pass a notification on",
        "worker/claiming/queue_listener.py",
        "            if notification and not wanted:\n                self.notify_others()\n",
        "",
    ): ("tests/integration/worker/test_queue_listener.py",),
    at(
        "a worker counts as full when another shard fills the pool",
        "worker/claiming/prefetch.py",
        "self.held < self.size or self.own < self.share",
        "self.held < self.size",
    ): ("tests/unit/worker/test_prefetch.py", "tests/integration/shards/test_busy_shard.py"),
    at(
        "a worker prefetches without regard to other shards",
        "worker/claiming/prefetch.py",
        "max(self.share, self.target // (1 + self.contenders)) - self.own",
        "self.target - self.own",
    ): ("tests/unit/worker/test_prefetch.py",),
    at(
        "an attempt's end is the time of its settlement",
        "worker/settlement.py",
        "return _at_us(claim, monotonic()) if outcome.began is None else",
        "return _at_us(claim, monotonic()) if outcome else",
    ): ("tests/unit/worker/test_settlement.py",),
    at(
        "the outcome of an interrupted coroutine has no run time",
        "worker/pools/claim_queue.py",
        "return outcome if self.began is None else timed(outcome, self.began)",
        "return outcome",
    ): ("tests/integration/worker/pools/each_claim_ends/test_asyncio.py",),
    at(
        "a worker whose Redis is unavailable keeps its share of the pool",
        "worker/worker.py",
        "            if self._prefetch.request_ended(wants_more=False, held=self._pool.held):\n"
        "                self.wake()\n",
        "",
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "a blocking claim is never confirmed",
        "worker/claiming/blocking_claim.py",
        "            self._queues.confirm([claim.lease for claim in reply.claims])\n",
        "            pass\n",
    ): (BLOCKING_CLAIM, KILLS),
    Mutation(
        "a blocking claim is confirmed after its job starts",
        (
            ("worker/worker.py", "may_run and self._blocking_claim.confirm(reply):", "may_run:"),
            (
                "worker/worker.py",
                "                sleep(0)\n",
                "                sleep(0)\n            self._blocking_claim.confirm(reply)\n",
            ),
        ),
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "a stopping worker waits for a notification",
        "worker/worker.py",
        "wanted=self.phase.claims and not",
        "wanted=not",
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "the reply to a confirmation is taken for a notification",
        "store/client/blocking_listener.py",
        "            while self._unread_replies:\n",
        "            while False:\n",
    ): ("tests/integration/store/client/test_blocking_listener.py",),
    at(
        "a blocking exchange keeps claims for a pool that others have filled",
        "worker/claiming/blocking_claim.py",
        "self._pool.held >= self._pool.size or not reply.claimed",
        "not reply.claimed",
    ): (BLOCKING_CLAIM,),
    at(
        "a cancelled blocking claim still claims",
        "worker/exchange_session.py",
        "request.call, request.want = None, 0",
        "request.call = None",
    ): (BLOCKING_CLAIM,),
    at(
        "an exchange is chained although the setting forbids it",
        "worker/claiming/blocking_claim.py",
        "idle and self._enabled and",
        "idle and",
    ): (BLOCKING_CLAIM,),
    at(
        "a worker is not woken when another shard frees a slot",
        "worker/claiming/prefetch.py",
        " or (held < self._size and any(each.is_full for each in others))",
        "",
    ): ("tests/unit/worker/test_prefetch.py",),
    at(
        "an unstarted claim is released only with other outcomes",
        "worker/outcome_buffer.py",
        "            if outcome.kind is OutcomeKind.UNSTARTED:\n",
        "            if False:\n",
    ): ("tests/unit/worker/test_outcome_buffer.py",),
    at(
        "a pool runs all its claims before more are requested",
        "worker/worker.py",
        "if was_idle and to_run and not reply.has_more:",
        "if was_idle and to_run:",
    ): ("tests/integration/worker/test_overlap.py",),
    at(
        "a dispatcher avoids early promotions, and is late instead",
        "dispatcher/dispatcher.py",
        "_LATE_GAIN, _EARLY_FACTOR = 0.3, 0.93",
        "_LATE_GAIN, _EARLY_FACTOR = 0.1, 0.7",
    ): ("tests/unit/test_lead_time.py",),
    at(
        "the outcome of the only job waits for others",
        "worker/outcome_buffer.py",
        "self._clock() if self._expected > 0 else 0.0",
        "self._clock()",
    ): ("tests/unit/worker/test_outcome_buffer.py",),
    at(
        "the last outcome does not wake its worker",
        "worker/outcome_buffer.py",
        "return first or self._expected <= 0",
        "return first",
    ): ("tests/unit/worker/test_outcome_buffer.py",),
    at(
        "a forked process keeps its parent's blocking pop open",
        "store/client/blocking_listener.py",
        "os.register_at_fork(after_in_child=_after_fork)\n",
        "",
    ): ("tests/integration/store/client/test_blocking_listener.py",),
    at(
        "the jobs of a worker's last second are in no line",
        "processes/emitter.py",
        "            self._queue_timed(now=inf)\n",
        "",
    ): ("tests/unit/processes/test_emitter.py", DONE_LINES),
    at(
        "the sum of done jobs waits for the next emission",
        "processes/emitter.py",
        "                    self._changed.wait(seconds)\n",
        "                    self._changed.wait()\n",
    ): ("tests/unit/processes/test_emitter.py", DONE_LINES),
    at(
        "done jobs are counted again in the next second",
        "worker/done_log.py",
        "run_us, self._run_us = self._run_us, []",
        "run_us = self._run_us",
    ): (DONE_LOG,),
    at(
        "a handler of the project gets a sum instead of lines",
        "worker/done_log.py",
        " or _project_logs_info()",
        "",
    ): (DONE_LOG, DONE_LINES),
    at(
        "a receiver misses the jobs without a line",
        "worker/settlement.py",
        "if has_own_line or has_receiver or",
        "if has_own_line or",
    ): (DONE_LOG, DONE_LINES),
    at(
        "a forked process inherits the count of done jobs and its lock",
        "worker/done_log.py",
        "os.register_at_fork(after_in_child=done_log.__init__)",
        "os.register_at_fork(after_in_child=int)",
    ): (DONE_LOG,),
    at(
        "a probe runs the system checks of the project",
        "management/commands/delayq_check.py",
        'options["skip_checks"] or options["alive"]',
        'options["skip_checks"]',
    ): ("tests/integration/commands/test_alive.py",),
}
