"""Planned bugs of throttled jobs that the state machine must catch; see `mutation.py`."""

from tests.stateful.mutations.mutation import ENQUEUE, PROMOTE, Mutation

CANCEL = "store/lua/cancel.lua"

at = Mutation.at

THROTTLES = [
    at("a window lasts a microsecond too long", ENQUEUE, "ends > now and", "ends >= now and"),
    at(
        "a throttled job is stored",
        ENQUEUE,
        "opened[job.throttle] = id else keep = false end",
        "opened[job.throttle] = id end",
    ),
    at("one batch opens a window twice", ENQUEUE, "return opened[key] or (", "return ("),
    at(
        "a repeated send is throttled by a later window",
        ENQUEUE,
        "  if is_known(id) then return id end\n",
    ),
    at(
        "a throttled job holds its key",
        "store/enqueue.py",
        "has_key = job.key is not None and not is_throttled",
        "has_key = job.key is not None",
    ),
    at(
        "a cancelled job leaves its window open",
        CANCEL,
        "end_window(id, throttle_of_extras(end_job(now, member, RUN_CANCELLED)))",
        "end_job(now, member, RUN_CANCELLED)",
    ),
    at(
        "a cancelled job ends the window of another one",
        CANCEL,
        "if key and redis.call('HGET', throttles, key) == id then",
        "if key then",
    ),
    at("a window that was ended by a cancel keeps its end", CANCEL, "    redis.call('ZREM', throttle_ends, key)\n"),
    at("windows that are over are kept", PROMOTE, "if #over > 0 then", "if false then"),
    at("a window that is over keeps its job", PROMOTE, "  redis.call('HDEL', throttles, unpack(over))\n"),
    at(
        "a window is removed before it is over",
        PROMOTE,
        "throttle_ends, '-inf', now,",
        "throttle_ends, '-inf', now + 1,",
    ),
]
