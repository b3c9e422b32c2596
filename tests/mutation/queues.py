"""Planted bugs of the queues, each with the tests of which at least one must fail."""

from tests.stateful.mutations import EXCHANGE, PRELUDE, PROMOTE, Mutation

at = Mutation.at
NAMES = "tests/integration/store/queries/test_queue_names.py"
LISTENER = "tests/integration/worker/test_queue_listener.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a retry does not list its queue",
        EXCHANGE,
        "put_scheduled(KEYS[base + 1], {retry.due, member})",
        "redis.call('ZADD', KEYS[base + 1], retry.due, member) push_notification(notify_dispatcher)",
    ): (NAMES,),
    at(
        "a ready job does not list its queue",
        PRELUDE,
        "  list_queue(now, ready)\n",
        "",
    ): (NAMES,),
    at("empty queues are never removed", PROMOTE, "      redis.call('ZREM', queues, queue)\n"): (NAMES,),
    at(
        "a queue with ready jobs is removed",
        PROMOTE,
        "if redis.call('EXISTS', ready, KEYS[base + 4]) > 0 then",
        "if false then",
    ): (NAMES,),
    at(
        "a queue with a running job is removed from the list",
        "store/lua/heartbeat.lua",
        "for at = 6, 5 + names do redis.call('ZADD', queues, 'XX', now, ARGV[at]) end\n",
    ): (NAMES,),
    at(
        "a new queue does not change the version of the queue list",
        PRELUDE,
        "== 1 then change_version(now) end",
        "== 1 then end",
    ): (LISTENER,),
    at(
        "a flush resets the version of the queue list",
        PRELUDE,
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
        PRELUDE,
        "'LT', first,",
        "'NX', first,",
    ): (NAMES,),
    at(
        "a postponed job leaves its old due time behind",
        "store/lua/reschedule.lua",
        "if place == scheduled then index_due(scheduled) end\n",
    ): (NAMES,),
    at(
        "a cancelled job leaves its queue listed as due",
        "store/lua/cancel.lua",
        "  index_due(scheduled)\n",
    ): (NAMES,),
}
