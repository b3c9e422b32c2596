"""Planned bugs of queues and of batches of jobs, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import EXCHANGE, PRELUDE, PROMOTE, QUEUES, REQUEUE, Mutation

at = Mutation.at
NAMES = "tests/integration/store/queries/test_queue_names.py"
LISTENER = "tests/integration/worker/test_queue_listener.py"

FILTER, OPTION = "tests/unit/conf/test_queue_filter.py", "tests/unit/management/test_queue_option.py"
FILTERED, REPORT = "tests/integration/worker/test_filtered_queues.py", "tests/integration/store/test_report.py"
LISTENING = "worker/claiming/queue_listener.py"
BATCHES = "tests/integration/store/operations/test_batches.py"
EXPIRY = "tests/integration/store/operations/test_expiry.py"
PAUSE = "tests/integration/store/operations/test_pause.py"
UNDO, UNDO_LUA = "tests/integration/store/operations/test_undo_requeue.py", "store/lua/undo_requeue.lua"
SPREAD = "tests/integration/store/operations/test_spread.py"
JOBS, CONTROL_SPREAD = "tests/integration/control/test_jobs.py", "tests/integration/control/test_spread.py"
COMMANDS = "tests/integration/commands/operating/test_commands.py"
ADMIN_SPREAD = "tests/admin/actions/test_failed_jobs.py"
RESCHEDULE_LUA, SPREAD_LUA = "store/lua/reschedule.lua", "store/lua/take_places.lua"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "all jobs of a batch are cancelled in the first queue",
        "store/lua/cancel.lua",
        "FIXED + 4 * (tonumber(ARGV[i]) - 1)",
        "FIXED",
    ): (BATCHES,),
    at(
        "all jobs of a batch are rescheduled in the first queue",
        RESCHEDULE_LUA,
        "FIXED + 5 * (tonumber(ARGV[i]) - 1)",
        "FIXED",
    ): (BATCHES,),
    at(
        "a batch is not cut by its bytes",
        "store/lua/read_bodies.lua",
        "if spent > budget and #replies > 0 then return replies end",
        "",
    ): (BATCHES,),
    at("a dead letter that is named twice is requeued twice", REQUEUE, "is_known[id] or "): (BATCHES,),
    at("two dead letters of a batch take one key", REQUEUE, "is_taken[key] or "): (BATCHES,),
    at("the undo of a requeue takes a job that has run since", UNDO_LUA, "~= seen then", "== nil then"): (UNDO,),
    at(
        "an undo takes a job that waits for another time by now",
        "store/lua/_places.lua",
        "return tonumber(score) == (is_scheduled",
        "return true or tonumber(score) == (is_scheduled",
    ): (UNDO,),
    at("a dead letter that comes back dies anew", UNDO_LUA, "(now, tonumber(died), member", "(now, now, member"): (
        UNDO,
    ),
    at(
        "the undo of a requeue takes a job that was snoozed since",
        "store/operations/waiting_jobs.py",
        "attempts != attempts.revived()",
        "attempts.ended",
    ): (UNDO,),
    at(
        "the undo of a requeue makes a dead letter of any waiting job",
        "store/operations/waiting_jobs.py",
        " or not (attempts.history or attempts.sealed)",
        "",
    ): (UNDO,),
    at(
        "a group was last seen when an older dead letter came back",
        "store/lua/_dead_letters.lua",
        "math.max(last, (struct.unpack('>I8', stored, 9)))",
        "last",
    ): (UNDO,),
    at("a spread begins anew with each call", SPREAD_LUA, "if stored then read_spread(stored) end\n"): (SPREAD,),
    at(
        "a spread makes up for places that passed",
        SPREAD_LUA,
        "math.max(began, now - math.floor(taken))",
        "began",
    ): (SPREAD,),
    at(
        "a spread is over before its last place",
        SPREAD_LUA,
        "began + math.max(length, taken) <= now",
        "began + length <= now",
    ): (SPREAD,),
    at(
        "a caller that took no place ends a spread",
        "store/operations/spread.py",
        "        if self.begun:\n",
        "        if True:\n",
    ): (SPREAD,),
    at(
        "a pause ends a microsecond late",
        PROMOTE,
        "if ends and tonumber(ends) <= now then",
        "if ends and tonumber(ends) < now then",
    ): (PAUSE,),
    at(
        "the dispatcher oversleeps the end of a pause",
        PROMOTE,
        "if pause_end[2] then wake = math.min(wake, tonumber(pause_end[2])) end\n",
    ): (PAUSE,),
    at(
        "a pause that ends soon does not wake the dispatcher",
        "store/lua/pause.lua",
        "if ends < (tonumber(promotion or '') or math.huge) then push_notification(notify_dispatcher) end\n",
    ): (PAUSE,),
    at(
        "the end of a pause notifies no worker",
        PROMOTE,
        "if redis.call('EXISTS', ready, KEYS[base + 4]) > 0 then notify_workers(KEYS[base + 3]) end",
    ): (PAUSE,),
    at(
        "a job that was rescheduled is changed again",
        "control/jobs.py",
        "lambda row: row.due_us != due_us",
        "lambda _: True",
    ): (JOBS,),
    at("ready jobs lose their rank when they are to run now", "control/jobs.py", "if due_us <= now_us:", "if False:"): (
        JOBS,
    ),
    at(
        "a spread counts the jobs of all shards",
        "control/jobs.py",
        "left=count) for shard, count",
        "left=left.total()) for shard, _",
    ): (CONTROL_SPREAD,),
    at("spreads of other filters share their places", "control/jobs.py", "repr((self.filter.queue, ", "repr(("): (
        JOBS,
    ),
    at(
        "a dry run changes jobs",
        "management/operating.py",
        'if options["dry_run"]:\n            self.print_result(options, f"Would {verb[0]}',
        'if False:\n            self.print_result(options, f"Would {verb[0]}',
    ): (COMMANDS,),
    at(
        "a command without a terminal changes jobs unasked",
        "management/operating.py",
        "        if not sys.stdin.isatty():",
        "        if not sys.stdin.isatty():\n            return\n        if False:",
    ): (COMMANDS,),
    at(
        "a spread outlives its caller",
        "control/jobs.py",
        "            self._store.operations(shard).dead_letters.end_spread(each)\n",
        "            pass\n",
    ): (CONTROL_SPREAD,),
    at(
        "a named job that fails after the call began is changed",
        "control/jobs.py",
        "to_us is None or row.moment_us < to_us",
        "True",
    ): (JOBS,),
    at(
        "a failed job that fails after the call began is changed",
        "control/jobs.py",
        """                if to_us is not None:
                    options["to_us"] = to_us
""",
        "",
    ): (JOBS,),
    at(
        "a spread of ids has places for jobs that do not match",
        "control/jobs.py",
        "left[shard] += len(batch.rows)",
        "left[shard] += batch.total",
    ): (CONTROL_SPREAD,),
    at(
        "each call of a batch counts all of its jobs",
        "store/operations/dead_letters.py",
        "spread.left -= len(numbers)",
        "pass",
    ): (SPREAD,),
    at(
        "a damaged expiry stops the jobs behind it",
        "job/body/codec.py",
        "    except (ValueError, TypeError, KeyError, RecursionError) as error:\n"
        '        raise BadBody("the stored body is damaged: its expiry',
        '    except ZeroDivisionError as error:\n        raise BadBody("the stored body is damaged: its expiry',
    ): (EXPIRY,),
    at("unfinished spreads are never forgotten", SPREAD_LUA, "SPREADS, RECORD = 100,", "SPREADS, RECORD = 1000,"): (
        SPREAD,
    ),
    at(
        "the spread of each shard is for the jobs of all shards",
        "admin/actions/run.py",
        "counts.setdefault(key, _count(page, action_request, shard))",
        "counts.setdefault(key, action_request.count)",
    ): (ADMIN_SPREAD,),
    at(
        "a retry does not list its queue",
        EXCHANGE,
        "put_scheduled(KEYS[base + 1], {retry.due, member})",
        "redis.call('ZADD', KEYS[base + 1], retry.due, member) push_notification(notify_dispatcher)",
    ): (NAMES,),
    at(
        "a ready job does not list its queue",
        QUEUES,
        "  if not listed then list_queue(now, ready) end\n",
        "",
    ): (NAMES,),
    at(
        "a queue that is listed is never listed again",
        QUEUES,
        "return listed and now - listed < MINUTE",
        "return listed",
    ): (NAMES,),
    at("empty queues are never removed", PROMOTE, "      redis.call('ZREM', queues, queue)\n"): (NAMES,),
    at(
        "a queue with ready jobs is removed",
        PROMOTE,
        "if redis.call('EXISTS', ready, KEYS[base + 4], KEYS[base + 5]) > 0 then\n",
        "if false then\n",
    ): (NAMES,),
    at(
        "a queue with a running job is removed from the list",
        "store/lua/heartbeat.lua",
        "for at = 6, 5 + names do redis.call('ZADD', queues, 'XX', now, ARGV[at]) end\n",
    ): (NAMES,),
    at(
        "a new queue does not change the version of the queue list",
        QUEUES,
        "== 1 then change_version(now) end",
        "== 1 then end",
    ): (LISTENER,),
    at(
        "a flush resets the version of the queue list",
        QUEUES,
        "tonumber(found) or now) + 1",
        "tonumber(found) or 0) + 1",
    ): (LISTENER,),
    at(
        "workers of all queues are not notified",
        PRELUDE,
        "  push_notification(queue_notify)\n  push_notification(notify)\n",
        "  push_notification(queue_notify)\n",
    ): ("tests/integration/store/enqueue/test_enqueue.py",),
    at(
        "a worker that ends notifies of queues without work",
        "store/lua/notify.lua",
        "if redis.call('EXISTS', KEYS[base + 1], KEYS[base + 3]) > 0 then push_notification(",
        "if true then push_notification(",
    ): (LISTENER,),
    at(
        "a manually edited name keeps the dispatcher busy",
        "store/promotion.py",
        "if encode_queue(queue).encode() != name]",
        "if not name]",
    ): (NAMES,),
    at(
        "an earlier due time does not update the due index of its queue",
        QUEUES,
        "'LT', first,",
        "'NX', first,",
    ): (NAMES,),
    at(
        "a worker of a filter listens to no new queue",
        LISTENING,
        "        return [*known, self._shared_key]\n",
        '        return known or [keys.notify("")]\n',
    ): (FILTERED,),
    at(
        "a worker of a filter swallows notifications of other queues",
        LISTENING,
        "self.owes_notification, self._pause_until = True, self._clock() + _PAUSE",
        "self._pause_until = self._clock() + _PAUSE",
    ): (FILTERED,),
    at(
        "each job of other queues wakes a worker of a filter",
        LISTENING,
        "self.owes_notification, self._pause_until = True, self._clock() + _PAUSE",
        "self.owes_notification = True",
    ): (FILTERED,),
    at(
        "a worker of a filter consumes what it sends to others",
        LISTENING,
        "self.owes_notification, self._pause_until = False, self._clock() + _PAUSE",
        "self.owes_notification = False",
    ): (FILTERED,),
    at(
        "the pause of a worker of a filter lasts as long as its pop",
        LISTENING,
        "block = min(block, max(_SHORTEST_POP, pause))",
        "pass",
    ): (FILTERED,),
    at(
        "workers of filters send a notification to each other",
        "store/shard.py",
        'notify=self.keys("notify_sent_on")',
        'notify=self.keys("notify")',
    ): (FILTERED,),
    at(
        "workers of all queues do not receive what is sent on",
        "store/keys.py",
        'or [self("notify"), self("notify_sent_on")]',
        'or [self("notify")]',
    ): (FILTERED,),
    at(
        "a notification that a worker of a filter may have lost is not sent on",
        LISTENING,
        "        self.owes_notification = self._filter is not None\n",
        "",
    ): (FILTERED,),
    at(
        "a worker of a filter cannot free the memory of a full Redis",
        LISTENING,
        "            self.owes_notification = False\n            self._shard.send_on_notification()\n",
        "            self._shard.send_on_notification()\n            self.owes_notification = False\n",
    ): (FILTERED,),
    at(
        "a worker of a filter that is full keeps the notification of a new queue",
        LISTENING,
        "            self.owes_notification = False\n            self._shard.notify(())\n        if not",
        "            self.owes_notification = False\n        if not",
    ): (FILTERED,),
    at(
        "a worker of a filter that ends keeps the notification that it may have lost",
        "worker/worker.py",
        "        elif self._work_available or self._queues.owes_notification:\n",
        "        elif self._work_available:\n",
    ): (FILTERED,),
    at(
        "a worker of a filter sends nothing on",
        "worker/worker.py",
        "            self._queues.send_on()\n",
        "            pass\n",
    ): (FILTERED,),
    at(
        "a worker of a filter notifies nobody of a new queue that it does not serve",
        LISTENING,
        "if not known.issuperset(names):",
        "if not known.issuperset(self.queues):",
    ): (FILTERED,),
    at(
        "a pop goes on without a new queue",
        LISTENING,
        "if self._filter and self._listener.listening:",
        "if False:",
    ): (FILTERED,),
    at(
        "a worker of a filter serves all queues",
        LISTENING,
        "if self._filter is None or self._filter.matches(name))",
        "if name)",
    ): (FILTERED,),
    at(
        "a worker of a filter takes the notification of all before its own",
        LISTENING,
        "return [*known, self._shared_key]",
        "return [self._shared_key, *known]",
    ): (FILTERED,),
    at(
        "a pattern's ends overlap",
        "conf/queue_filter.py",
        "if start > end or not (",
        "if not (",
    ): (FILTER,),
    at(
        "a part of a pattern overlaps its end",
        "conf/queue_filter.py",
        "found = queue.find(part, start, end)",
        "found = queue.find(part, start)",
    ): (FILTER,),
    at(
        "a part of a pattern is found twice",
        "conf/queue_filter.py",
        "start = found + len(part)",
        "start = found",
    ): (FILTER,),
    at(
        "an exclusion alone serves nothing",
        "conf/queue_filter.py",
        "            not included or any(item.matches(queue) for item in included)\n",
        "            any(item.matches(queue) for item in included)\n",
    ): (FILTER,),
    at(
        "exclusions may leave no queue",
        "conf/queue_filter.py",
        "if made.excluded and all(",
        "if False and all(",
    ): (FILTER,),
    at(
        "an exclusion is taken for a star that has a name",
        "conf/queue_filter.py",
        "self.matches(_STAR.join(other.parts))",
        'self.matches("*".join(other.parts))',
    ): (FILTER,),
    at(
        "a pattern may match no declared queue",
        "management/queue_option.py",
        "elif tasks.queues and not any(map(item.matches, tasks.queues)):",
        "elif False:",
    ): (OPTION,),
    at(
        "exclusions may leave no declared queue",
        "management/queue_option.py",
        "if tasks.queues and not any(map(queue_filter.matches, tasks.queues)):",
        "if False:",
    ): (OPTION,),
    at(
        "names alone are no strict order",
        "management/queue_option.py",
        "if not queue_filter.is_needed:",
        "if False:",
    ): (OPTION,),
    at(
        "the filter of a worker is not known to the admin",
        "store/queries/snapshot.py",
        "if self.filtered and (",
        "if False and (",
    ): (REPORT, "tests/admin/views/test_overview.py"),
    at(
        "an older admin takes queues of a filter for unserved",
        "processes/reporter.py",
        '"more_queues": filtered or len(queues) > _QUEUES,',
        '"more_queues": len(queues) > _QUEUES,',
    ): (REPORT,),
    at(
        "a report that lacks exclusions counts as the whole filter",
        "processes/reporter.py",
        '"filtered": filtered and len(queues) <= _QUEUES,',
        '"filtered": filtered,',
    ): (REPORT,),
}
