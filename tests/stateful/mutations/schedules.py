"""Planted bugs of recurring schedules: how they are set, declared, paused and planted; see `mutation.py`."""

from tests.stateful.mutations.mutation import PROMOTE, Mutation

SCHEDULES_LUA, PLANT = "store/lua/_schedules.lua", "store/lua/plant.lua"
SET, DECLARE = "store/lua/set_schedules.lua", "store/lua/declare_schedules.lua"
PAUSE, RESUME, DELETE = (f"store/lua/{name}.lua" for name in ("pause_schedule", "resume_schedule", "delete_schedules"))
PLAN, SCHEDULE, PLANTING = "recurring/plan.py", "recurring/schedule.py", "store/schedules/planting.py"

at = Mutation.at

#: Every run of the tests tries these.
FIRST_OF_SCHEDULES = [
    at(
        "a plan is stored after another dispatcher planted",
        PLANT,
        "schedule.occurrence == tonumber(ARGV[at + 2])",
        "true",
    ),
]

#: Which plans are stored, and what is stored of them.
_PLANTED = [
    at("a plan of an earlier version is stored", PLANT, "schedule.version == tonumber(ARGV[at + 1])", "true"),
    at(
        "an occurrence with a job is planned again",
        PLANT,
        "schedule.occurrence, schedule.planted = occurrence, string.sub(member, 1, 12)",
        "schedule.planted = string.sub(member, 1, 12)",
    ),
    at(
        "nobody knows that a planted job waits",
        PLANT,
        "    store_schedule(schedule)\n    if next_time",
        "    if occurrence then schedule.planted = NO_JOB end\n    store_schedule(schedule)\n    if next_time",
    ),
    at(
        "a schedule that has ended stays in the plan",
        PLANT,
        "      redis.call('ZREM', next_planting, id)\n    else\n",
        "    else\n",
    ),
    at(
        "an earlier plan does not wake the dispatcher",
        PLANT,
        "if first_plan < (tonumber(promotion_at or '') or math.huge) then push_notification(notify_dispatcher) end\n",
    ),
    at("a job that is planted late is promoted first", PLANT, "due > now and timed or untimed", "timed"),
    at(
        "a job that is planted late has the rank of that moment",
        PLANT,
        "rank_of(member, due, head_start), member",
        "rank_of(member, now, head_start), member",
    ),
    at("a planted job has no extras record", PLANT, "  redis.call('HSET', job_extras, unpack(records))\n"),
    at("a dispatcher that cannot read a schedule leaves no sign", PLANT, "    schedule.flags = flags\n"),
    at("a planted job has no version", PLANTING, "._replace(schedule_version=record.version)"),
    at("only the first of several jobs is planted", PLANTING, "            last_us = occurrence_us\n"),
    at("a schedule is unreadable for ever", PLANTING, "record.flags & ~UNREADABLE", "record.flags"),
    at(
        "a window begins before the jitter",
        PLANTING,
        "moment_us=min(due_us + expires_after_us",
        "moment_us=min(occurrence_us + expires_after_us",
    ),
    at("a window replaces the option of the task", PLANTING, "window if is_first else expiry", "window"),
    at(
        "a schedule is planted one microsecond late",
        PROMOTE,
        "entries_between(next_planting, '-inf', now, PLANTED)",
        "entries_between(next_planting, '-inf', now - 1, PLANTED)",
    ),
    at(
        "the dispatcher sleeps until the next job, whatever it has to plant",
        PROMOTE,
        "if next_plan[2] then wake = math.min(wake, tonumber(next_plan[2])) end\n",
    ),
]

#: Which occurrences get a job, and when.
_PLANS = [
    at("a job that waits stands for nothing", PLAN, "if not is_waiting and not ran and", "if not ran and"),
    at("a job that has run stands for nothing", PLAN, "if not is_waiting and not ran and", "if not is_waiting and"),
    at(
        "a job that began too late stands for missed occurrences",
        PLAN,
        "schedule.due_us(latest) and not _has_expired(schedule, last_us, now_us=last_start_us)",
        "schedule.due_us(latest)",
    ),
    at(
        "a job that began before the last missed occurrence stands for it",
        PLAN,
        "last_start_us >= schedule.due_us(latest)",
        "last_start_us >= schedule.due_us(first)",
    ),
    at(
        "the first missed occurrence gets the job of all",
        PLAN,
        "latest = latest_occurrence(schedule, first_us=first, now_us=now_us)",
        "latest = first",
    ),
    at(
        "of all missed occurrences one gets a job",
        PLAN,
        "return _plan_of(schedule, missed)",
        "return _plan_of(schedule, missed[-1:])",
    ),
    at(
        "nothing is planted behind a job that waits for a running one",
        PLAN,
        "if is_waiting and not is_running and",
        "if is_waiting and",
    ),
    at(
        "a second job is planted while one waits for a worker",
        PLAN,
        'is_running and schedule.catch_up == "last":',
        'is_running and schedule.catch_up == "first":',
    ),
    at(
        "a missed occurrence is planted in place of the next one",
        PLAN,
        "    ahead = schedule.next_after(now_us)\n    return Plan([], None) if ahead",
        "    ahead = schedule.next_after(last_us)\n    return Plan([], None) if ahead",
    ),
    at("nobody looks again before the next occurrence", PLAN, "else left_us // 2)", "else left_us)"),
    at("jobs are planted at any time before the next one", SCHEDULE, " / _PLANTED_WITHIN)", ")"),
    at(
        "jobs are due at their occurrences in spite of the jitter",
        SCHEDULE,
        'return min(occurrence + int(self._share("jitter") * self.jitter_us), LATEST_US)',
        "return occurrence",
    ),
    at(
        "a job may begin until the next one, however late",
        SCHEDULE,
        "return min(_LONGEST_WINDOW_US, _LONGEST",
        "return (_LONGEST",
    ),
    at("a schedule goes on after its end", SCHEDULE, "occurrence > self.end_us)", "occurrence > 10 * self.end_us)"),
]

#: How schedules change.
_CHANGED = [
    at(
        "a changed schedule waits for the job of its earlier version",
        SCHEDULES_LUA,
        "  schedule.planted = NO_JOB\n  store_schedule(schedule)\n  if schedule.flags",
        "  store_schedule(schedule)\n  if schedule.flags",
    ),
    at(
        "a changed schedule keeps its version",
        SCHEDULES_LUA,
        "  change_schedule_version(now, schedule)\n  schedule.planted = NO_JOB\n",
        "  schedule.planted = NO_JOB\n",
    ),
    at(
        "a paused schedule is planted when it is set",
        SCHEDULES_LUA,
        "if schedule.flags % 2 == 0 then plan(schedule, now) end",
        "plan(schedule, now)",
    ),
    at(
        "a changed schedule is planted at its earlier moment",
        SCHEDULES_LUA,
        "  if schedule.flags % 2 == 0 then plan(schedule, now) end\n",
    ),
    at(
        "a schedule that is set does not wake the dispatcher",
        SCHEDULES_LUA,
        "    if moment < (tonumber(promotion_at or '') or math.huge) then push_notification(notify_dispatcher) end\n",
    ),
    at("an equal schedule is replaced", SCHEDULES_LUA, "  if is_equal then return '' end\n"),
    at("a schedule with another argument is equal", SCHEDULES_LUA, " and schedule.definition == definition\n", "\n"),
    at(
        "a declared schedule equals that of a person",
        SCHEDULES_LUA,
        "schedule and schedule.flags % 4 - schedule.flags % 2 == flags and",
        "schedule and",
    ),
    at(
        "the occurrence of a waiting job is lost by a change",
        SCHEDULES_LUA,
        "schedule.occurrence <= now and schedule.occurrence - 1 or now",
        "now",
    ),
    at(
        "a job that is due later is planted at once after a change",
        SCHEDULES_LUA,
        "schedule.occurrence <= now and schedule.occurrence - 1 or now",
        "schedule.occurrence - 1",
    ),
    at(
        "a job that is gone is cancelled by a change",
        SCHEDULES_LUA,
        "if waiting == NO_JOB or redis.call('HEXISTS', jobs, waiting) == 0 then",
        "if waiting == NO_JOB then",
    ),
    at(
        "a change forgets the failures",
        SCHEDULES_LUA,
        "  schedule.overlap, schedule.pause_after, schedule.definition = overlap, pause_after, definition\n",
        "  schedule.overlap, schedule.pause_after, schedule.definition = overlap, pause_after, definition\n"
        "  schedule.failures = 0\n",
    ),
    at(
        "two versions of one millisecond are equal",
        SCHEDULES_LUA,
        "schedule.version = is_later and version or schedule.version % VERSIONS + 1",
        "schedule.version = version",
    ),
    at(
        "a person changes a declared schedule",
        SET,
        "  if is_declared(read_schedule(ARGV[at])) then return at / 4 end\n",
    ),
    at(
        "a person deletes a declared schedule",
        DELETE,
        "  if is_declared(read_schedule(ARGV[at])) then return at - 1 end\n",
    ),
    at(
        "a process declares that looked before its own last declaration",
        DECLARE,
        "string.sub(before, 1, HEAD_SIZE) ~= expected",
        "string.sub(before, 1, 8) ~= string.sub(expected, 1, 8)",
    ),
    at("what is not declared any more stays", DECLARE, "and is_declared(read_schedule(id)) then", "and false then"),
    at(
        "a schedule that the code cannot make is deleted",
        DECLARE,
        "for at = 1, #kept, ID_SIZE do is_declared_now[string.sub(kept, at, at + ID_SIZE - 1)] = true end\n",
    ),
    at("a schedule that the code cannot make is forgotten", DECLARE, "ids = {}, {}, {kept}", "ids = {}, {}, {}"),
    at("a declared schedule is not marked as such", DECLARE, "set_schedule(now, id, 1,", "set_schedule(now, id, 0,"),
    at("the job of a removed declaration stays", DECLARE, "add(delete_schedule(id))", "delete_schedule(id)"),
    at(
        "the job of a changed declaration stays",
        DECLARE,
        "add(set_schedule(now, id, 1, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]))",
        "set_schedule(now, id, 1, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3])",
    ),
    at(
        "a deleted schedule stays in the plan",
        SCHEDULES_LUA,
        "  known_schedules[id] = nil\n  redis.call('ZREM', next_planting, id)\n",
        "  known_schedules[id] = nil\n",
    ),
    at(
        "the job of a deleted schedule stays",
        SCHEDULES_LUA,
        "schedule and (schedule.planted ~= NO_JOB and schedule.planted or '')",
        "schedule and ''",
    ),
    at(
        "a paused schedule keeps its version",
        SCHEDULES_LUA,
        "  change_schedule_version(now, schedule)\n  schedule.flags = schedule.flags + (",
        "  schedule.flags = schedule.flags + (",
    ),
    at(
        "a paused schedule stays in the plan",
        SCHEDULES_LUA,
        "IS_PAUSED or 0)\n  redis.call('ZREM', next_planting, schedule.id)\n",
        "IS_PAUSED or 0)\n",
    ),
    at("a schedule is paused twice", PAUSE, "if schedule.flags % 2 == 1 then return 0 end\n"),
    at("a schedule is resumed that goes on", RESUME, "if schedule.flags % 2 == 0 then return 0 end\n"),
    at(
        "a resumed schedule counts its earlier failures",
        RESUME,
        "schedule.flags - IS_PAUSED, 0, now",
        "schedule.flags - IS_PAUSED, schedule.failures, now",
    ),
    at(
        "a resumed schedule catches up on its pause",
        RESUME,
        "schedule.flags - IS_PAUSED, 0, now",
        "schedule.flags - IS_PAUSED, 0, schedule.occurrence",
    ),
]

SCHEDULES = [*_PLANTED, *_PLANS, *_CHANGED]
