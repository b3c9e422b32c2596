"""ACL roles against the scripts: the rules follow the commands of scripts, and no role gets a forbidden command."""

from pathlib import Path

import pytest

from django_delayq.store import store
from django_delayq.store.client.script import Script
from django_delayq.store.maintenance.acl_roles import ROLES, commands_in

FOLDER = Path(store.__file__).parent / "lua"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.lua"))
READS = {
    *("GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSCAN", "HSTRLEN", "HVALS", "INFO"),
    *("LINDEX", "LRANGE", "TIME", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZMSCORE", "ZRANGE", "ZRANK", "ZSCORE", "ZUNION"),
}
CONNECTION = {"ASKING", "CLIENT|SETNAME", "CLUSTER|SLOTS", "EVAL", "EVALSHA", "ROLE", "SELECT"}
#: The commands of each script. A new redis.call() appears here, and in the rule of every role that runs the script.
ENTER = "DEL GET LLEN RPUSH SET TIME ZADD ZCARD ZRANGE ZREM "
#: What put_ready() calls, with the turns of tenants.
PUT = ENTER + "HDEL HEXISTS HGET HLEN HSET "
#: What a script calls that takes a slot of a limit.
LIMITS = "DEL GET HEXISTS HGET HLEN HSET LLEN RPUSH TIME ZADD ZCARD ZLEXCOUNT ZMSCORE ZRANGE "
CALLS = {
    "enqueue": PUT + "HINCRBY ZLEXCOUNT ZSCORE",
    "enqueue_one": ENTER + "HDEL HEXISTS HINCRBY HLEN HSET ZSCORE",
    "set_layout": "GET SET TIME",
    "count_lingering": "GET HDEL HGET HSET TIME",
    "find_holders": "HEXISTS HGET TIME",
    "replace": PUT + "HINCRBY ZLEXCOUNT ZSCORE",
    "promote": PUT + "EXISTS HMGET HSTRLEN TYPE ZMSCORE ZSCORE",
    "let_in": PUT + "ZLEXCOUNT ZMSCORE ZSCORE",
    "settle_and_claim": PUT + "EXISTS HGETALL HKEYS HMGET HRANDFIELD PEXPIRE SADD SREM ZLEXCOUNT ZMSCORE ZSCORE",
    "claim_one": LIMITS + "HDEL SADD SREM ZREM ZSCORE",
    "heartbeat": "HEXISTS HMGET HSET SREM TIME ZADD ZCARD ZMSCORE",
    "reclaim": PUT + "HRANDFIELD PEXPIRE SISMEMBER SREM ZLEXCOUNT ZMSCORE ZSCORE",
    "stop": "DEL HDEL HGET HSET LLEN PEXPIRE RPUSH TIME",
    "cancel": "DEL GET HDEL HEXISTS HGET HLEN HSET LLEN PEXPIRE RPUSH "
    "TIME ZADD ZCARD ZRANGE ZREM ZREMRANGEBYRANK ZSCORE",
    "reschedule": PUT + "ZSCORE",
    "move": PUT + "ZSCORE",
    "requeue": PUT + "HMGET ZMSCORE ZSCORE",
    "undo_requeue": PUT + "HRANDFIELD ZLEXCOUNT ZSCORE",
    "revive": PUT + "ZREMRANGEBYRANK ZSCORE",
    "hand_over_schedule": "HDEL HEXISTS HGET HLEN HSET TIME ZCARD ZREM",
    "take_over_schedule": "DEL GET HEXISTS HGET HLEN HSET LLEN RPUSH TIME ZADD ZCARD ZREM ZREMRANGEBYRANK ZSCORE",
    "take_places": "HDEL HGET HGETALL HLEN HSET TIME",
    "discard": "DEL GET HDEL HLEN HMGET HSTRLEN SET TIME ZCARD ZMSCORE ZREM ZSCORE",
    "read_bodies": "HGET TIME",
    "find": "HGET LINDEX TIME ZSCORE",
    "page": "HGET TIME ZCARD ZCOUNT ZLEXCOUNT ZRANGE ZRANK ZSCORE",
    "snapshot": "HGET HGETALL HKEYS HLEN HMGET HVALS INFO TIME ZCARD ZCOUNT ZRANGE ZUNION",
    "due_histogram": "TIME ZCOUNT",
    "read_totals": "HGET HGETALL HKEYS TIME",
    "pause": "DEL GET HGET HSET HSETNX LLEN RPUSH TIME ZADD ZCARD ZREM",
    "resume": "DEL HDEL LLEN RPUSH TIME ZCARD ZREM",
    "notify": "DEL EXISTS LLEN RPUSH TIME",
    "quiet": "DEL HDEL HLEN HSETNX LLEN PEXPIRE RPUSH TIME ZREM ZSCORE",
    "report": "DEL HDEL HEXISTS HGET HGETALL HINCRBY HLEN HRANDFIELD HSET LINDEX LLEN LTRIM RPUSH TIME ZADD ZCARD ZREM",
    "audit_types": "DEL TIME TYPE",
    "audit_places": "DEL GET HDEL HEXISTS HGET HSET LLEN RPUSH SET SREM TIME ZADD ZRANGE ZREM ZSCORE",
    "audit_bytes": "DEL GET SET TIME",
    "audit_throttles": "HDEL HGET TIME ZREM ZSCORE",
    "audit_limits": "GET HDEL HEXISTS HGET HSET LLEN DEL RPUSH TIME TYPE ZADD ZCARD ZRANGE ZREM ZSCORE",
    "audit_schedules": "DEL GET HGET LLEN RPUSH TIME ZADD ZREM ZSCORE",
    "audit_records": ENTER.replace("ZCARD ", "") + "HDEL HEXISTS HGET HLEN HRANDFIELD HSET ZLEXCOUNT ZSCORE",
    "audit_tenants": "HDEL HEXISTS HGET HSET TIME ZADD ZRANGE ZREM ZSCORE",
    "pause_tenant": "HDEL HGET HLEN HSET HSETNX TIME ZADD ZCARD ZRANGE ZREM",
    "resume_tenant": "DEL HDEL HEXISTS HGET HLEN HSET LLEN RPUSH TIME ZADD ZCARD ZRANGE ZREM ZSCORE",
    "sweep": "DEL EXISTS GET HGET LLEN RPUSH TIME",
    "find_tenants": "HGET HSTRLEN TIME ZLEXCOUNT ZRANGE",
    "set_limits": "HDEL HGETALL HSET TIME",
    "take_slot": LIMITS + "ZREM ZSCORE",
    "give_back_slot": LIMITS + "ZREM ZSCORE",
    "back_off": "GET HGET HLEN HSET TIME ZADD ZSCORE",
    "pause_task": "HSETNX TIME",
    "resume_task": "DEL GET HDEL HLEN LLEN RPUSH TIME ZADD ZCARD ZRANGE",
    "find_error_groups": "HGET HKEYS TIME ZLEXCOUNT ZRANGE",
    "audit_error_groups": "HDEL HEXISTS HGET HLEN HRANDFIELD HSET TIME ZADD ZLEXCOUNT ZREM ZSCORE",
    "find_limits": "HEXISTS HGET TIME ZLEXCOUNT ZMSCORE",
    "set_schedules": "DEL GET HEXISTS HGET HLEN HSET LLEN RPUSH TIME ZADD ZCARD ZREM",
    "pause_schedule": "HGET HLEN HSET TIME ZCARD ZREM",
    "resume_schedule": "DEL GET HGET HLEN HSET LLEN RPUSH TIME ZADD ZCARD ZREM",
    "delete_schedules": "HDEL HGET HLEN TIME ZCARD ZREM",
    "declare_schedules": "DEL GET HDEL HEXISTS HGET HLEN HSET LLEN RPUSH SET TIME ZADD ZCARD ZREM",
    "plant": PUT + "HINCRBY ZSCORE",
}
#: Commands that no role may run, whatever its scripts need.
FORBIDDEN = {
    *(
        "KEYS",
        "SCAN",
        "FLUSHALL",
        "FLUSHDB",
        "CONFIG",
        "DEBUG",
        "SCRIPT",
        "SHUTDOWN",
        "REPLICAOF",
        "SLAVEOF",
        "MONITOR",
    ),
    *(
        "CLIENT",
        "CLIENT|KILL",
        "CLIENT|PAUSE",
        "CLIENT|LIST",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "ACL",
        "MODULE",
        "SORT",
    ),
    *("RESTORE", "MIGRATE", "RENAME", "SWAPDB", "FUNCTION", "FCALL", "PUBLISH", "SUBSCRIBE", "PSUBSCRIBE", "CLUSTER"),
    *("MULTI", "EXEC", "LPOP", "RPOP", "GETDEL", "EXPIRE", "OBJECT", "DUMP", "COPY", "MEMORY", "LATENCY"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_calls_what_is_written_here(name: str) -> None:
    assert commands_in(Script(name).text) == set(CALLS[name].split())


def test_each_script_is_run_by_some_role() -> None:
    assert {script for role in ROLES.values() for script in role.scripts} == set(SCRIPTS) == set(CALLS)


@pytest.mark.parametrize("name", ROLES)
def test_a_role_is_allowed_what_its_scripts_and_apis_need_and_no_more(name: str) -> None:
    role = ROLES[name]
    parts = (role, *role.includes)
    needed = {call for part in parts for script in part.scripts for call in CALLS[script].split()} | CONNECTION
    needed |= {call for part in parts for call in part.plain}
    assert set(role.commands) == needed
    assert list(role.commands) == sorted(needed)
    assert not needed & FORBIDDEN


def test_a_rule_names_the_keys_of_the_prefix_no_channel_and_single_commands() -> None:
    for role in ROLES.values():
        keys, channels, nothing, *allowed = role.rule("shop").split(" ")
        assert (keys, channels, nothing) == ("~shop:*", "resetchannels", "-@all")
        assert allowed == [f"+{command.lower()}" for command in role.commands]
        assert "@" not in "".join(allowed)


def test_the_view_role_may_call_nothing_that_writes() -> None:
    assert set(ROLES["view"].commands) <= READS | CONNECTION


def test_a_worker_may_do_what_the_dispatcher_and_producers_do() -> None:
    for name in ("dispatcher", "producer"):
        assert set(ROLES[name].commands) < set(ROLES["worker"].commands)


def test_calls_in_comments_are_none() -> None:
    assert commands_in("-- redis.call('KEYS')\nreturn redis.pcall( 'GET', key) -- redis.call('DEL', key)") == {"GET"}
