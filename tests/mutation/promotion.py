"""Planned bugs of dispatchers, each with the tests of which at least one must fail."""

from tests.stateful.mutations.mutation import Mutation

at = Mutation.at
PROMOTE = "store/lua/promote.lua"
OUTAGE = "tests/integration/store/promotion/test_outage.py"
EXCHANGE, HEARTBEATS = "store/lua/settle_and_claim.lua", "tests/unit/worker/test_heartbeats.py"
RESCHEDULE = "tests/integration/store/operations/test_reschedule.py"
DISPATCHERS = "tests/integration/test_several_dispatchers.py"
DEAD = "tests/integration/store/promotion/test_dead_limits.py"
LIMITS = "tests/integration/store/limits/test_what_is_left.py"
LIMITED, DAMAGE = "tests/integration/store/limits/test_running.py", "tests/integration/store/limits/test_damage.py"
AUDIT, LET_IN, CHECK = "store/lua/audit_limits.lua", "store/lua/let_in.lua", "management/commands/delayq_check.py"
LIMITS_LUA = "store/lua/_limits.lua"
PLAN, PLANS = "recurring/plan.py", "tests/unit/recurring/test_plan.py"
DECLARE, DECLARED = "store/lua/declare_schedules.lua", "tests/integration/store/schedules/test_declared.py"
DECLARER, DECLARATIONS = "dispatcher/declarer.py", "tests/integration/task/declarations/test_declarations.py"
ALIVE, REPORTS = "tests/integration/commands/test_alive.py", "tests/integration/commands/test_delayq_check.py"
HELPERS = "tests/testing_helpers/test_schedules.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "code outside a job gives a slot back twice",
        "store/lua/give_back_slot.lua",
        "redis.call('ZREM', outside_slots, id .. lease)\n",
    ): (LIMITS,),
    at(
        "jobs of a paused tenant that were let in hold up others",
        LET_IN,
        "      if is_served(hash, group) then number",
        "      if true then number",
    ): (LIMITED,),
    at(
        "leases expire during an outage of Redis",
        PROMOTE,
        "elseif expected and now - expected > outage then",
        "elseif false then",
    ): (OUTAGE,),
    at(
        "a lease is spared at every outage",
        PROMOTE,
        "expired_by, spared_until = spared_until - recovery, now + recovery",
        "expired_by, spared_until = 0, now + recovery",
    ): (OUTAGE,),
    at(
        "a clock that is set back spares every lease",
        PROMOTE,
        "if spared_until > now + recovery then spared_until = 0 end\n",
        "",
    ): (OUTAGE,),
    at(
        "the dispatcher oversleeps the time in which leases are spared",
        PROMOTE,
        "math.max(tonumber(lease[2]), spared_until)",
        "math.max(tonumber(lease[2]), now + sweep)",
    ): (OUTAGE,),
    at(
        "trimming of dead letters waits for the next sweep",
        PROMOTE,
        "(trims_left or #over == WINDOWS or #open > 0)",
        "(#over == WINDOWS or #open > 0)",
    ): (DEAD,),
    at("the size of dead letters is not limited", PROMOTE, " or bytes > dead_limit", ""): (DEAD,),
    at("one step trims an unlimited number of bytes", PROMOTE, "freed + size > LETTERS_BYTES", "false"): (DEAD,),
    at(
        "removed dead letters stay in the byte count",
        "store/lua/_dead_letters.lua",
        "  add_dead_bytes(-size)\n",
        "",
    ): (DEAD,),
    at(
        "a wrong sum of bytes is reported and not repaired",
        "store/lua/audit_bytes.lua",
        "add_dead_bytes(counted - sum_of_dead_bytes())\n",
        "",
    ): (DEAD,),
    at(
        "the bodies of all expired leases are read at once",
        "store/promotion.py",
        "if at > start and total + size > _BATCH_BYTES:",
        "if False:",
    ): ("tests/integration/store/promotion/test_reclaim.py",),
    at(
        "a postponed immediate job has no head start",
        "store/operations/waiting_jobs.py",
        "        if flags == head.flags and not head.expires:\n",
        "        if True:\n",
    ): (RESCHEDULE,),
    at(
        "a span of a job in a spread counts from now",
        "store/operations/dead_letters.py",
        "job.estimated_due_us(0 if spread else now_us)",
        "jobs[number].estimated_due_us(now_us)",
    ): ("tests/integration/store/operations/test_expiry.py",),
    at(
        "a job that runs now keeps the expiry of its old time",
        "store/operations/waiting_jobs.py",
        'rewritten(head.flags) if head.expires else b""',
        'b""',
    ): ("tests/integration/store/operations/test_expiry.py",),
    at(
        "a postponed job no longer holds its key",
        "store/lua/reschedule.lua",
        "redis.call('HSET', unique_keys, key, new_member)",
        "redis.call('HDEL', unique_keys, key)",
    ): (RESCHEDULE,),
    at(
        "a postponed job overwrites a body that changed",
        "store/lua/reschedule.lua",
        "  if new_body ~= '' and redis.call('HGET', jobs, id) ~= seen then return 'ELSEWHERE', 0, 0, '' end\n",
        "",
    ): (RESCHEDULE,),
    at(
        "every dispatcher promotes at each due time",
        "dispatcher/dispatcher.py",
        "if not self._follows or notified or",
        "if True or notified or",
    ): (DISPATCHERS,),
    at(
        "a follower never takes over from a dead dispatcher",
        "dispatcher/dispatcher.py",
        "if wake_at_us is None or wake_at_us <= self._wake_at_us:",
        "if wake_at_us is None or wake_at_us < self._wake_at_us:",
    ): (DISPATCHERS,),
    at(
        "a follower ignores notifications",
        "dispatcher/dispatcher.py",
        "if not self._follows or notified or",
        "if not self._follows or",
    ): (DISPATCHERS,),
    at(
        "a dispatcher that wakes early becomes a follower",
        "dispatcher/dispatcher.py",
        "promoted.redundant and (self._follows or promoted.next_promotion_us != self._wake_at_us)",
        "promoted.redundant",
    ): (DISPATCHERS,),
    at(
        "a clock set back by an hour hides that no dispatcher promotes",
        "store/lua/_prelude.lua",
        "left <= LONGEST_SWEEP + 2 * OVERDUE",
        "left < 3600 * OVERDUE",
    ): ("tests/integration/store/claims/test_settle_and_claim.py",),
    at(
        "a worker checks only at its sweep whether a dispatcher promotes",
        "worker/fallback_dispatcher.py",
        "            self.check_at = now + max(_MIN_INTERVAL, overdue_in + _MARGIN)\n",
        "            self.check_at = float('inf')\n",
    ): ("tests/unit/worker/test_fallback_dispatcher.py",),
    Mutation(
        "a repeated exchange counts queues in 16 bits",
        (
            (EXCHANGE, "struct.unpack('>c14I8I4', last, i)", "struct.unpack('>c14I8I2', last, i)"),
            (EXCHANGE, "struct.pack('>c14I8I4',", "struct.pack('>c14I8I2',"),
            (EXCHANGE, "#last - 25, 26 do", "#last - 23, 24 do"),
        ),
    ): ("tests/integration/store/claims/test_many_queues.py",),
    at(
        "a heartbeat keeps a lease that Redis reports as lost",
        "worker/claiming/leases.py",
        "                del self._trusted_until[lease]\n",
        "",
    ): (HEARTBEATS,),
    at(
        "a worker's lease clock stops while its host is suspended",
        "clock.py",
        "return monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)",
        "return monotonic()",
    ): (HEARTBEATS,),
    at(
        "jobs that wait for a limit wait on when the clock is set back",
        PROMOTE,
        "  redis.call('ZADD', next_let_in, now, id)\n",
    ): (LIMITS,),
    at(
        "a task backs off on when the clock is set back",
        "store/lua/_limits.lua",
        "  if state.backs_off_too_far then redis.call('ZADD', limit_times, state.back_off, BACK_OFF .. id) end\n",
    ): (LIMITS,),
    at(
        "code that asks for a slot waits on when the clock is set back",
        "store/lua/take_slot.lua",
        "correct_times(id, state)\n",
    ): (LIMITS,),
    at(
        "one claim parks any number of jobs",
        EXCHANGE,
        "\n          or limited and parked_left == 0",
    ): (LIMITED,),
    at(
        "a short entry of a limit stops the dispatcher",
        LIMITS_LUA,
        "  if #entry < 52 then return end\n",
    ): (DAMAGE,),
    at(
        "a short entry of a limit makes another queue's job wait forever",
        LIMITS_LUA,
        "    else\n      redis.call('ZREM', limit_jobs, entry)\n    end\n  end\n  return found",
        "    else\n      break\n    end\n  end\n  return found",
    ): (DAMAGE,),
    at(
        "nobody finds a parked job that waits for no limit",
        "store/lua/audit_places.lua",
        "  if noun == 'parked' and redis.call('HEXISTS', waiting_for, id) == 0 then return 'MISPLACED' end\n",
    ): (DAMAGE,),
    at(
        "a repair gives a limit's slot that a job has to others",
        AUDIT,
        "string.sub(lease, 1, 12)) or '', id) and 'OK' or 'NO_RECORD'",
        "string.sub(lease, 1, 12)) or '', id) and 'OK' or 'MISSING'",
    ): (DAMAGE,),
    at(
        "a slot of an ended lease stays",
        AUDIT,
        "    if not redis.call('ZSCORE', leases, lease) then return 'MISSING' end\n",
    ): (DAMAGE,),
    at(
        "a check takes a job that was moved meanwhile for damaged",
        AUDIT,
        "    value = nil\n",
    ): (DAMAGE,),
    at(
        "a check cannot say what it found",
        CHECK,
        '    "NO_SLOT": ("running jobs without their slot of a limit", "given the slot"),\n',
    ): ("tests/integration/commands/test_delayq_check.py",),
    at(
        "each of several dispatchers plants a job ahead",
        PLAN,
        "if is_waiting and schedule.due_us(last_us) > now_us:",
        "if False:",
    ): (PLANS,),
    at(
        "a job is planted beside one that is about to expire",
        PLAN,
        "if began_late and now_us - last_start_us < _EXPIRES_WITHIN_US:",
        "if False:",
    ): (PLANS,),
    at(
        "a schedule waits for ever for a job that began too late and goes on",
        PLAN,
        "if began_late and now_us - last_start_us < _EXPIRES_WITHIN_US:",
        "if began_late:",
    ): (PLANS,),
    at(
        "a job that was claimed after it had expired stands for later occurrences",
        PLAN,
        " and not _has_expired(schedule, last_us, now_us=last_start_us)\n        if",
        "\n        if",
    ): (PLANS,),
    at(
        "an occurrence that nobody may run any more gets a job",
        PLAN,
        " and not _has_expired(schedule, latest, now_us=now_us):",
        ":",
    ): (PLANS,),
    at(
        "missed occurrences are caught up without an end",
        PLAN,
        "max(last_us, now_us - schedule.catch_up_window_us)",
        "last_us",
    ): (PLANS,),
    at(
        "a job that began after an outage does not stand for it",
        PLAN,
        "ran = last_start_us >= schedule.due_us(latest) and",
        "ran = False and",
    ): (PLANS,),
    at(
        "the dispatcher that started first declares",
        DECLARER,
        "before.started_us < mine.started_us",
        "before.started_us > mine.started_us",
    ): (DECLARATIONS,),
    at(
        "nobody takes the place of a process that is gone",
        DECLARER,
        "return not self._declared.is_dispatcher_alive(before.process)",
        "return False",
    ): (DECLARATIONS,),
    at(
        "a process takes the place of a living one",
        DECLARER,
        "return not self._declared.is_dispatcher_alive(before.process)",
        "return True",
    ): (DECLARATIONS,),
    at(
        "the clock of a host decides whether a dispatcher is alive",
        "store/schedules/schedule_declarations.py",
        "self._shard.now_us(time) - float(seen)",
        "__import__('time').time_ns() // 1_000 - float(seen)",
    ): (DECLARATIONS,),
    at(
        "the waiting job of a changed declaration stays",
        "store/schedules/schedule_declarations.py",
        "cancel_planted(to_cancel or [])",
        "cancel_planted([])",
    ): (HELPERS,),
    at(
        "a repair leaves schedules with an older key",
        "management/preflight.py",
        "range(0, len(older) if repair else 0, BATCH)",
        "range(0, 0, BATCH)",
    ): (REPORTS,),
    at(
        "a dispatcher promotes nothing while Redis accepts no schedules",
        DECLARER,
        "except StoreError as error:",
        "except ZeroDivisionError as error:",
    ): (DECLARATIONS,),
    at(
        "a process that was overtaken declares nevertheless",
        DECLARE,
        "if string.sub(before, 1, HEAD_SIZE) ~= expected then return 0 end\n",
        "",
    ): (DECLARED,),
    at(
        "a schedule that took the name of a declared one at run time is deleted with the declaration",
        DECLARE,
        " and is_declared(read_schedule(id)) then",
        " then",
    ): (DECLARED,),
    at(
        "a declaration that a process cannot make is deleted",
        DECLARE,
        "is_declared_now[string.sub(kept, at, at + ID_SIZE - 1)] = true",
        "",
    ): (DECLARED,),
    at(
        "what a process cannot make is forgotten",
        DECLARE,
        "to_cancel, is_declared_now, ids = {}, {}, {kept}",
        "to_cancel, is_declared_now, ids = {}, {}, {}",
    ): (DECLARED,),
    at(
        "a removed declaration goes on",
        DECLARE,
        "then add(delete_schedule(id)) end",
        "then add('') end",
    ): (DECLARED,),
    at(
        "a change at run time replaces a declared schedule",
        "store/lua/set_schedules.lua",
        "if is_declared(read_schedule(ARGV[at])) then return",
        "if false then return",
    ): (DECLARED,),
    at(
        "a declared schedule can be deleted",
        "store/lua/delete_schedules.lua",
        "if is_declared(read_schedule(ARGV[at])) then return",
        "if false then return",
    ): (DECLARED,),
    at(
        "a paused schedule that is declared again runs",
        "store/lua/_schedules.lua",
        "schedule.flags = schedule.flags % 2 + flags",
        "schedule.flags = flags",
    ): (DECLARED,),
    at(
        "a schedule that is over is declared",
        "task/recurring/declarations.py",
        "if has_ended(recurring, now_us=now_us) or",
        "if",
    ): (DECLARATIONS,),
    at(
        "the settings of the tasks stand above RECURRING",
        "task/recurring/declarations.py",
        "    for entry in store.config.tasks.recurring.values():",
        "    for entry in ():",
    ): (DECLARATIONS,),
    at(
        "a queue without workers is not found",
        "monitoring/liveness.py",
        "        if not is_served:",
        "        if False:",
    ): (ALIVE,),
    at(
        "a backlog is a fault",
        "monitoring/liveness.py",
        "        if not is_served:",
        "        if True:",
    ): (ALIVE,),
    at(
        "a schedule without a next job is not found",
        "monitoring/liveness.py",
        "if planting_us is not None and",
        "if False and",
    ): (ALIVE,),
    at(
        "a dispatcher that stands still is not found",
        "monitoring/liveness.py",
        "if promoted_us is not None and",
        "if False and",
    ): (ALIVE,),
}
