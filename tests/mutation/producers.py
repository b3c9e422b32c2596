"""Planned bugs of the producers, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at
KEYS, DECLARATION = "tests/integration/task/unique/test_key_functions.py", "tests/integration/task/test_declaration.py"

COMMIT = "tests/integration/task/on_commit"
TENANTS = "tests/integration/control/test_tenants.py"
DEADLINE = "tests/integration/store/nodes/test_deadline.py"
MIDDLEWARE = "tests/integration/middleware"
LOST, CANCEL = "tests/integration/task/test_lost_answers.py", "tests/integration/store/operations/test_cancel.py"

THROTTLES = "tests/integration/store/enqueue/test_throttles.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a clock that was set back keeps calls away for that long",
        "store/lua/enqueue.lua",
        " and ends <= now + 2 * window and first",
        " and first",
    ): (THROTTLES,),
    at(
        "a clock that is a little behind opens a second window",
        "store/lua/enqueue.lua",
        "now + 2 * window",
        "now + window",
    ): (THROTTLES,),
    at(
        "the end of a window is too late for a score",
        "store/lua/enqueue.lua",
        "math.min(now + job.window, LATEST)",
        "now + job.window",
    ): (THROTTLES,),
    at(
        "only one batch of windows is removed in a sweep",
        "store/lua/promote.lua",
        "(trims_left or #over == WINDOWS or #open > 0)",
        "(trims_left or #open > 0)",
    ): (THROTTLES,),
    at(
        "a window leads to a job after it is over",
        "store/queries/lookup.py",
        "float(open_until.get(digest) or 0) > now_us",
        "float(open_until.get(digest) or 0) > 0",
    ): (THROTTLES,),
    at(
        "a window leads to a job that is gone",
        "store/queries/lookup.py",
        "found and found.of_window and self.find(found.raw_id).state is State.GONE",
        "False",
    ): ("tests/integration/task/unique/test_throttle.py",),
    at(
        "half a window is sound",
        "store/lua/audit_throttles.lua",
        " or not first and not ends) and",
        " or not first or not ends) and",
    ): ("tests/integration/store/maintenance/test_throttles.py",),
    at(
        "the record of a throttled job is malformed",
        "store/lua/audit_records.lua",
        " or throttle_of_extras(extra)",
        "",
    ): ("tests/integration/store/maintenance/test_throttles.py",),
    at(
        "a throttled task needs no key",
        "task/task.py",
        "if key is None and not isinstance(self.unique, str):",
        "if False:",
    ): ("tests/integration/task/unique/test_throttle.py", "tests/integration/task/unique/test_debounce.py"),
    at(
        "a computed key replaces the key of the call",
        "task/task.py",
        "if key is None and self.key_of is not None:",
        "if self.key_of is not None:",
    ): (KEYS,),
    at(
        "a key is computed without the defaults of the task",
        "task/options/argument_function.py",
        "    bound.apply_defaults()\n",
        "",
    ): (KEYS,),
    at(
        "a key function that finds nothing ends a batch without a word",
        "task/options/argument_function.py",
        "except StopIteration as error:",
        "except StopAsyncIteration as error:",
    ): (KEYS,),
    at(
        "a middleware that finds nothing ends a batch without a word",
        "middleware/chain.py",
        "self._enqueue = _without_stop(link.enqueue)",
        "self._enqueue = link.enqueue",
    ): (f"{MIDDLEWARE}/test_enqueue.py",),
    at(
        "a middleware that calls the next one twice enqueues all the same",
        "middleware/chain.py",
        "        if len(made) > 1:\n",
        "        if False:\n",
    ): (f"{MIDDLEWARE}/test_enqueue.py",),
    at(
        "a job takes the place of another one than it was written for",
        "store/lua/replace.lua",
        "  if id ~= string.sub(expected, 1, 12) then return 'ELSEWHERE' end\n",
        "",
    ): ("tests/integration/task/unique/test_replace.py",),
    at(
        "a call that was cancelled before it arrived replaces a job",
        "store/lua/replace.lua",
        "    if redis.call('ZSCORE', withdrawn, own_id) then return 'STORED' end\n",
        "",
    ): ("tests/integration/task/unique/test_replace.py",),
    at(
        "a call that is sent again replaces a later one",
        "store/lua/replace.lua",
        "if redis.call('HEXISTS', jobs, own_id) == 1 or redis.call('HEXISTS', dead_bodies, own_id) == 1 then",
        "if false then",
    ): ("tests/integration/task/unique/test_replace.py",),
    at(
        "a running job of an earlier release holds the key of a series",
        "store/lua/_extras.lua",
        "return is_running and key_until_start(holder) and '' or holder",
        "return holder",
    ): ("tests/integration/task/unique/test_replace.py",),
    at(
        "a replaced job has the signature of another one",
        "store/enqueue.py",
        "signed = item if holder is None else replace(item, job=replace(job, raw_id=holder.raw_id))",
        "signed = item",
    ): ("tests/integration/task/unique/test_replace.py",),
    at(
        "of a batch, the last job of a key has its own id",
        "store/enqueue.py",
        "raw_id=self._ids[same[0]]",
        "raw_id=self._ids[same[-1]]",
    ): ("tests/integration/task/unique/test_replace.py",),
    at(
        "a handle is lost in a set when its key is held",
        "task/handle.py",
        'draft.job.key is not None and draft.unique != "reject"',
        "False",
    ): ("tests/integration/task/test_async_calls.py",),
    at(
        "a key function is checked at the first job only",
        "task/decorator.py",
        "            check_argument_function(each, signature(func), name=name_of_option)\n",
        "            pass\n",
    ): (KEYS,),
    at(
        "a path into the task's own module is never judged",
        "task/task.py",
        "        if self.has_open_rules:\n",
        "        if False:\n",
    ): (DECLARATION,),
    at(
        "a policy is judged for good while its module is being imported",
        "task/task.py",
        "has_open_rules=not is_resolved(policy)",
        "has_open_rules=False",
    ): (DECLARATION,),
    at(
        "the checks accept a path into a module that cannot be imported",
        "checks.py",
        'resolve(task.retry, name=f"the task {task.name}", is_final=True)',
        'resolve(task.retry, name=f"the task {task.name}")',
    ): (DECLARATION,),
    at(
        "a refused resend reports that earlier sends stored nothing",
        "task/sender.py",
        "error.maybe_accepted or any(handle.maybe_sent for handle in left)",
        "error.maybe_accepted",
    ): (LOST,),
    at(
        "the error of a single enqueue names no unsent job",
        "task/sender.py",
        "_complete([handle], error, 0)",
        "error.accepted = 0",
    ): (LOST,),
    at("a handle forgets that its enqueue may have arrived", "task/batch.py", "self._sent and not refused", "False"): (
        LOST,
    ),
    at(
        "middlewares are called innermost first",
        "middleware/chain.py",
        "for path in reversed(paths):",
        "for path in paths:",
    ): (f"{MIDDLEWARE}/test_enqueue.py", f"{MIDDLEWARE}/test_run.py"),
    at(
        "a context of any size travels",
        "task/task.py",
        "        check_context(context, of=self.name)\n",
        "",
    ): (f"{MIDDLEWARE}/test_enqueue.py",),
    at(
        "a middleware that forgets its return enqueues all the same",
        "middleware/chain.py",
        "    if returned is not made[0]:\n",
        "    if False:\n",
    ): (f"{MIDDLEWARE}/test_enqueue.py",),
    at(
        "a dropped configuration keeps its chain",
        "middleware/chain.py",
        "on_config_dropped.append(get_chain.cache_clear)\n",
        "",
    ): (f"{MIDDLEWARE}/test_enqueue.py",),
    at(
        "a job runs in the language of its worker",
        "middleware/locale.py",
        "translation.override(carried[_LANGUAGE])",
        "translation.override(translation.get_language())",
    ): (f"{MIDDLEWARE}/test_locale.py",),
    at(
        "each run begins a trace of its own",
        "middleware/opentelemetry.py",
        "outer = propagate.extract(headers)",
        "outer = propagate.extract({})",
    ): (f"{MIDDLEWARE}/test_opentelemetry.py",),
    at(
        "a stranger's baggage makes an enqueue fail",
        "middleware/opentelemetry.py",
        "        if size <= left:\n",
        "        if True:\n",
    ): (f"{MIDDLEWARE}/test_opentelemetry.py",),
    at(
        "a long baggage takes the place of the trace",
        "middleware/opentelemetry.py",
        'item[0] != "traceparent", len(item[1])',
        "-len(item[1])",
    ): (f"{MIDDLEWARE}/test_opentelemetry.py",),
    at(
        "the jobs of a batch are all in one trace",
        "middleware/opentelemetry.py",
        "if job.context.get(_BATCH) or job.schedule is not None:",
        "if job.schedule is not None:",
    ): (f"{MIDDLEWARE}/test_traces.py",),
    at(
        "the jobs of a schedule are all in one trace",
        "middleware/opentelemetry.py",
        "if job.context.get(_BATCH) or job.schedule is not None:",
        "if job.context.get(_BATCH):",
    ): (f"{MIDDLEWARE}/test_traces.py",),
    at(
        "a task does not have the baggage of its enqueue",
        "middleware/opentelemetry.py",
        "with _current(span, outer):",
        "with _current(span):",
    ): (f"{MIDDLEWARE}/test_traces.py",),
    at(
        "an enqueue of many ends its batch at the first job",
        "middleware/enqueue_batch.py",
        "        if id(owner) not in self._entered:\n",
        "        if True:\n",
    ): (f"{MIDDLEWARE}/test_traces.py",),
    at(
        "a middleware hides the error of an enqueue of many",
        "middleware/enqueue_batch.py",
        "    manager.__exit__(kind, error, traceback)\n",
        "    return manager.__exit__(kind, error, traceback)\n",
    ): (f"{MIDDLEWARE}/test_batches.py",),
    at(
        "a failure of tracing is a failure of the job",
        "middleware/log_errors.py",
        "        return True\n",
        "        return False\n",
    ): (f"{MIDDLEWARE}/test_tracing_errors.py",),
    at(
        "the jobs of a schedule have the baggage of the request that set it",
        "middleware/opentelemetry.py",
        "outer if job.schedule is None else here",
        "outer",
    ): (f"{MIDDLEWARE}/test_traces.py",),
    at(
        "an error names no page",
        "exceptions.py",
        "if self.part and (sentence := see(self.part)) not in text:",
        "if False:",
    ): ("tests/integration/first_mistakes/test_first_mistakes.py",),
    at(
        "nobody learns that no worker serves the queue of an awaited job",
        "task/handle.py",
        "if not self._store.snapshot().is_served(queue, lease_us=lease_us):",
        "if False:",
    ): ("tests/integration/first_mistakes/test_first_mistakes.py",),
    at(
        "nobody learns that two projects have one prefix",
        "monitoring/liveness.py",
        "    if len(projects) > 1:\n        prefix",
        "    if False:\n        listed",
    ): ("tests/integration/first_mistakes/test_first_mistakes.py",),
    at(
        "a middleware changes the arguments in place",
        "middleware/job.py",
        "return tuple(deepcopy(self._job.args))",
        "return tuple(self._job.args)",
    ): (f"{MIDDLEWARE}/test_enqueue.py",),
    at(
        "a cancelled job is resent if its enqueue may have arrived",
        "task/handle.py",
        "        self.draft = None\n        kept",
        "        kept",
    ): (LOST,),
    at(
        "a job whose enqueue may have arrived is changed in its handle only",
        "task/handle.py",
        "            if not self.maybe_sent:\n                return True\n",
        "            return True\n",
    ): (LOST,),
    at(
        "a repeated cancel returns False",
        "store/lua/cancel.lua",
        "  if token ~= '' then keep_record(cancelled, now, id .. token) end\n",
        "",
    ): (LOST, CANCEL),
    at(
        "a flush raises although a later flush follows",
        "task/outbox.py",
        "last=self.pending.latest is self",
        "last=True",
    ): (COMMIT,),
    at(
        "a held unique key blocks later jobs of its commit",
        "task/outbox.py",
        "                    left = [handle for handle in left if handle.draft is not None]\n",
        "                    left = []\n",
    ): (COMMIT,),
    at(
        "jobs that one commit could not send are sent with the next commit",
        "task/outbox.py",
        "hook in hooks if isinstance(hook, _Flush)), None) or cls()",
        "hook in hooks if isinstance(hook, _Flush)), None) or vars(connection).setdefault('_pending', cls())",
    ): (COMMIT,),
    at(
        "an outage of one store blocks jobs of another store",
        "task/outbox.py",
        "        for handles in by_store.values():\n",
        "        for handles in [sum(by_store.values(), [])]:\n",
    ): ("tests/django_tasks/test_options.py",),
    at(
        "a job waits for a commit that runs no on_commit hooks",
        "task/outbox.py",
        "        if _is_manual(connection):\n",
        "        if False:\n",
    ): (COMMIT,),
    at(
        "a second database without autocommit blocks every enqueue",
        "task/outbox.py",
        "if database is None and _is_beside(connection):",
        "if False:",
    ): (COMMIT,),
    at(
        "jobs do not wait for a default database without autocommit",
        "task/outbox.py",
        "not configured and connection.alias != DEFAULT_DB_ALIAS and",
        "not configured and",
    ): (COMMIT,),
    at(
        "the log does not list the delayed jobs of a commit",
        "task/outbox.py",
        'retries: %s", left, failure)\n',
        'retries: %s", failure, left)\n',
    ): (COMMIT,),
    at(
        "a reply has a quarter of the time",
        "store/nodes/deadline.py",
        "else now + seconds",
        "else now + seconds / 4",
    ): (DEADLINE,),
    at(
        "a call is sent after the time of its page",
        "store/nodes/deadline.py",
        "if until and now >= until:",
        "if False:",
    ): (
        DEADLINE,
        "tests/admin/views/test_unavailable.py",
    ),
    at(
        "a later end replaces that of the block around it",
        "store/nodes/deadline.py",
        "min(until, around) if until and around else until or around",
        "until",
    ): (DEADLINE,),
    Mutation(
        "each step of a call gets the whole timeout",
        (
            (
                "store/nodes/deadline.py",
                "            if self._in_handshake:\n                self._apply_timeout()",
                "            if self._in_handshake:\n"
                "                self._start_timer()\n"
                "                self._apply_timeout()",
            ),
            ("store/nodes/deadline.py", "if not (self._fresh and self._left() > _SHORTEST):", "if True:"),
        ),
    ): (DEADLINE,),
    at(
        "a dead letter takes a key that belongs to another shard now",
        "store/operations/dead_letters.py",
        "not in ([], [self._shard.index]):",
        "is None:",
    ): ("tests/integration/shards/test_shards.py",),
    at(
        "a due time beyond the exact range is not clamped",
        "store/lua/_prelude.lua",
        "return due and math.min(due, LATEST)",
        "return due",
    ): ("tests/integration/store/enqueue/test_latest_due.py",),
    at(
        "a retry time beyond the exact range is not clamped",
        "store/lua/settle_and_claim.lua",
        "math.min(now + tonumber(ARGV[at + 2]), LATEST)",
        "now + tonumber(ARGV[at + 2])",
    ): ("tests/integration/store/enqueue/test_latest_due.py",),
    at(
        "a process exits if the password is refused at its start",
        "management/starting.py",
        "isinstance(error, StoreUnavailable | StoreAuthError)",
        "isinstance(error, StoreUnavailable)",
    ): ("tests/chaos/redis/test_redis_states.py",),
    at(
        "a refused password is not logged again",
        "processes/service.py",
        "again = isinstance(error, StoreAuthError) and",
        "again = False and",
    ): ("tests/unit/processes/test_service.py",),
    at(
        "services of several shards fail with file descriptors above 1023",
        "processes/shutdown.py",
        "if readable([self._wake_read], self._deadline - monotonic()):",
        "if __import__('select').select([self._wake_read], [], [], 1.0)[0]:",
    ): ("tests/integration/processes/test_reporter.py",),
    at(
        "a repair fails if the stored number of shards is invalid",
        "management/commands/delayq_check.py",
        "    drift: _Groups = {}\n",
        "    store.stored_shard_count()\n    drift: _Groups = {}\n",
    ): ("tests/integration/commands/test_delayq_check.py",),
    at("cancelled ids are kept forever", "store/lua/_prelude.lua", "0, -10001)", "0, -1000001)"): (CANCEL,),
    at(
        "an enqueue that arrives after its cancel creates a job",
        "store/lua/enqueue.lua",
        "not (any_withdrawn and redis.call('ZSCORE', withdrawn, id))",
        "true",
    ): (CANCEL,),
    at(
        "a refused job holds its key against the jobs behind it",
        "store/lua/enqueue.lua",
        "        if job.key then holders[job.key] = nil end\n",
    ): (TENANTS,),
    at(
        "a refused job throttles the jobs behind it",
        "store/lua/enqueue.lua",
        "        if job.throttle then opened[job.throttle] = nil end\n",
    ): (TENANTS,),
    at(
        "a commit sends the jobs without a key of a full tenant batch by batch",
        "task/outbox.py",
        "if id(handle) in named or (refused and handle.draft.job.key is None):",
        "if id(handle) in named:",
    ): (COMMIT,),
    at(
        "a crontab of Celery with both kinds of days runs on either",
        "task/recurring/celery_beat.py",
        '    if not fields[2].startswith("*") and not fields[4].startswith("*"):',
        "    if not fields:",
    ): ("tests/integration/task/celery_beat",),
}
