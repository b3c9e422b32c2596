"""Planted bugs of the jobs of recurring schedules: what begins, waits or is skipped, and what is kept of its end."""

from tests.stateful.mutations.mutation import DEAD_LETTERS, EXCHANGE, PARKING, PLACES, RECLAIM, Mutation
from tests.stateful.mutations.schedules import SCHEDULES_LUA

LET_IN, CANCEL = "store/lua/let_in.lua", "store/lua/cancel.lua"

at = Mutation.at

#: Every run of the tests tries these.
FIRST_OF_RUNS = [
    at("an ended job runs for ever", PLACES, "  if was_running then schedule.running = NO_JOB end\n"),
]

#: How jobs begin and end.
_ENDS = [
    at(
        "nobody knows which job runs",
        SCHEDULES_LUA,
        "schedule.running, schedule.last_start = job_id, math.floor(now / 1000000)",
        "schedule.last_start = math.floor(now / 1000000)",
    ),
    at(
        "nobody knows when the last job began",
        SCHEDULES_LUA,
        "schedule.running, schedule.last_start = job_id, math.floor(now / 1000000)",
        "schedule.running = job_id",
    ),
    at(
        "a job that begins waits nevertheless",
        SCHEDULES_LUA,
        "  if schedule.planted == job_id then schedule.planted = NO_JOB end\n  store_schedule(schedule)\nend\n",
        "  store_schedule(schedule)\nend\n",
    ),
    at(
        "a job does not know that it has begun",
        SCHEDULES_LUA,
        "    redis.call('HSET', job_extras, job_id, string.char(string.byte(record) + 128) .. string.sub(record, 2))\n",
    ),
    at(
        "a planted job that has ended waits nevertheless",
        PLACES,
        "  if schedule.planted == job_id then schedule.planted = NO_JOB end\n",
    ),
    at(
        "a job that ends lets nobody in",
        PLACES,
        "  if was_running then schedule_let_in(SCHEDULE_LIMIT .. id, now) end\n",
    ),
    at(
        "a waiting job of an earlier version counts when it ends",
        PLACES,
        "  if not was_running and version > 0 and version ~= schedule.version then return record end\n",
    ),
    at(
        "a running job of an earlier version does not count when it ends",
        PLACES,
        "if not was_running and version > 0 and version",
        "if version > 0 and version",
    ),
    at(
        "a job that a person runs does not count when it ends",
        PLACES,
        "if not was_running and version > 0 and version",
        "if not was_running and version",
    ),
    at(
        "a success does not end a series of failures",
        PLACES,
        "  if outcome == RUN_DONE then schedule.failures = 0 end\n",
    ),
    at(
        "a skipped job ends a series of failures",
        PLACES,
        "if outcome == RUN_DONE then",
        "if outcome ~= RUN_FAILED then",
    ),
    at("a skipped job is a failure", PLACES, "if outcome == RUN_FAILED then", "if outcome ~= RUN_DONE then"),
    at(
        "a schedule pauses one failure too late",
        PLACES,
        "schedule.failures >= schedule.pause_after",
        "schedule.failures > schedule.pause_after",
    ),
    at(
        "a schedule pauses without pause_after",
        PLACES,
        "schedule.pause_after > 0 and schedule.failures",
        "schedule.failures",
    ),
    at(
        "a paused schedule is paused again by a failure",
        PLACES,
        "if too_many and schedule.flags % 2 == 0 then",
        "if too_many then",
    ),
    at("one outcome too many is kept", PLACES, "1, 3 * KEPT_OUTCOMES - 3)", "1, 3 * KEPT_OUTCOMES)"),
    at("nobody knows how long a job ran", PLACES, "local took = claim and", "local took = nil and"),
    at("a long run is kept as a short one", SCHEDULES_LUA, "exponent * 2048 + ms", "ms"),
    at("nobody knows when the last job ended", PLACES, "  schedule.last_end = math.floor(now / 1000000)\n"),
    at(
        "a dead letter is still of its schedule",
        DEAD_LETTERS,
        "without_schedule(end_job(now, member, RUN_FAILED))",
        "end_job(now, member, RUN_FAILED)",
    ),
    at(
        "a dead letter loses its tenant",
        SCHEDULES_LUA,
        "string.char(flags) .. string.sub(record, 14) or ''",
        "'' or ''",
    ),
    at("each acknowledged job was done", EXCHANGE, "outcomes[lease] or RUN_DONE", "RUN_DONE"),
    at(
        "a stopped job of a worker that died runs for ever",
        RECLAIM,
        "      end_job(now, member, RUN_CANCELLED)\n",
        "      delete_extras(member)\n",
    ),
    at(
        "a cancelled job waits nevertheless",
        CANCEL,
        "throttle_of_extras(end_job(now, member, RUN_CANCELLED))",
        "throttle_of_extras(delete_extras(member))",
    ),
]

#: What a job does while another one of its schedule runs.
_OVERLAP = [
    at(
        "a job of an earlier version begins",
        PARKING,
        "  if version ~= (schedule and schedule.version) and version > 0 then return 'DROP' end\n",
    ),
    at(
        "a job that a person runs does not begin",
        PARKING,
        "(schedule and schedule.version) and version > 0 then",
        "(schedule and schedule.version) then",
    ),
    at("a job that has begun does not go on after a change", PARKING, "  if has_begun then return end\n"),
    at(
        "a job that waits for its retry is not stopped",
        PARKING,
        "return schedule.overlap == STOPS and waits() and 'DROP' or nil",
        "return",
    ),
    at(
        "a job that waits for its retry is stopped by one that waits",
        PARKING,
        "return schedule.overlap == STOPS and waits() and",
        "return waits() and",
    ),
    at(
        "jobs that may overlap wait",
        PARKING,
        "schedule.overlap > STOPS then return",
        "schedule.overlap > STOPS + 1 then return",
    ),
    at("a job that is to be skipped waits", PARKING, "if schedule.overlap == SKIPS or", "if"),
    at("two jobs wait for one that runs", PARKING, "schedule.overlap ~= ALL_WAIT and waits() then", "false then"),
    at("of all jobs one waits", PARKING, "schedule.overlap ~= ALL_WAIT and waits() then", "waits() then"),
    at(
        "a running job is not asked to stop",
        PARKING,
        "    if schedule.overlap == STOPS then ask_to_stop(now, running) end\n",
    ),
    at(
        "a running job is asked to stop by one that waits",
        PARKING,
        "if schedule.overlap == STOPS then ask_to_stop",
        "if true then ask_to_stop",
    ),
    at(
        "each further job gives a running one more time",
        PARKING,
        "if not progress_at or stop_by then return end",
        "if not progress_at then return end",
    ),
    at("a running job has too little time to stop", PARKING, "STOP_GRACE = 10000000", "STOP_GRACE = 1000000"),
    at(
        "a job that is asked to stop loses its progress",
        PARKING,
        "string.sub(record, 1, 32) .. stopping .. string.sub(record, 34)",
        "string.sub(record, 1, 32) .. stopping",
    ),
    at(
        "two jobs of one exchange begin",
        PARKING,
        "begun_schedules[id] or running_job(schedule)",
        "running_job(schedule)",
    ),
    at("two jobs of one exchange wait", PARKING, "parked_schedules[id] or first_parked", "first_parked"),
    at(
        "a newcomer begins before a job that waits for its schedule",
        PARKING,
        "elseif not is_behind_others(limit, entry.place, group_of_extras(record), entry.member, entry.rank) then",
        "else",
    ),
    at("a job that is to wait for its schedule is dropped", PARKING, "return held == 'DROP'", "return true"),
    at("a job that is to be dropped for its schedule waits", PARKING, "return held == 'DROP'", "return false"),
    at(
        "a job that a limit keeps back has begun",
        PARKING,
        "if schedule and not entry.waits_for then begun_schedules",
        "if schedule then begun_schedules",
    ),
    at(
        "a job that was let in and is dropped counts on",
        EXCHANGE,
        "        forget_let_in(claim.place, claim.member)\n",
    ),
    at(
        "a repeated answer does not say what is dropped",
        EXCHANGE,
        "queue = queue, waits_for = waits}",
        "queue = queue}",
    ),
    at(
        "two jobs of a schedule are let in",
        LET_IN,
        "burst = 1, most = 1, time = now, slots = slots",
        "burst = 1, most = 2, time = now, slots = slots",
    ),
    at("a job is let in while another one of its schedule runs", LET_IN, "running_job(schedule) and 1 or 0", "0 or 0"),
    at(
        "a job waits for one that it may overlap by now",
        LET_IN,
        "schedule.overlap <= STOPS and running_job",
        "running_job",
    ),
    at(
        "a job that waited for its schedule counts as let in forever",
        LET_IN,
        " and not is_schedule_limit(id) then\n",
        " then\n",
    ),
]

RUNS = [*_ENDS, *_OVERLAP]
