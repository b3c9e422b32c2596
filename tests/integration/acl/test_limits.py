"""Limits of every role: no administration, no keys outside of its prefix, no writes by a script of its own."""

from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from django_delayq.store.maintenance.acl_roles import ROLES
from tests.integration.acl.steps import PREFIX, RoleServer
from tests.shard_apis import ShardApis

FORBIDDEN = [
    *("KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET maxmemory 1", "CONFIG REWRITE"),
    *(
        "DEBUG SLEEP 0",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "SCRIPT LOAD x",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "MONITOR",
    ),
    *(
        "CLIENT KILL TYPE normal",
        "CLIENT PAUSE 1",
        "CLIENT LIST",
        "CLIENT NO-EVICT on",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
    ),
    *("ACL LIST", "ACL SETUSER x", "ACL WHOAMI", "MODULE LIST", "PUBLISH a b", "SUBSCRIBE a", "SLOWLOG GET", "DBSIZE"),
    *("RANDOMKEY", "SWAPDB 0 1", "MULTI", "CLUSTER INFO", "COMMAND", "MEMORY DOCTOR", "OBJECT HELP"),
]


@pytest.mark.parametrize("command", FORBIDDEN)
def test_no_role_may_run_commands_of_administration(command: str, role_server: RoleServer) -> None:
    for name in ROLES:
        with (
            role_server.user(name) as user,
            pytest.raises(ResponseError, match="(?i)no permissions|not allowed") as refused,
        ):
            user.execute_command(*command.split())
        # A server that allows DEBUG to nobody reports that first.
        assert isinstance(refused.value, NoPermissionError) or command.startswith("DEBUG")
        # The command is refused inside a script too.
        script = f"return redis.call({', '.join(map(repr, command.split()))})"
        with role_server.user(name) as user, pytest.raises(ResponseError):
            user.execute_command("EVAL", script, 0)
    assert role_server.every.client.ping()


def test_no_role_reaches_a_key_outside_its_prefix(role_server: RoleServer) -> None:
    role_server.every.client.hset("other:{0}:jobs", "x", "y")
    for name, role in ROLES.items():
        for key in ("other:{0}:jobs", PREFIX, f"x{PREFIX}:a", f"{PREFIX}-2:{{0}}:jobs"):
            calls = [call for call in role.commands if call in ("HGET", "HSET", "HDEL", "DEL", "ZADD", "ZREM")]
            assert calls
            for call in calls:
                arguments = {"HGET": ["x"], "HSET": ["x", 1], "HDEL": ["x"], "ZADD": [1, "x"], "ZREM": ["x"]}.get(
                    call, []
                )
                with role_server.user(name) as user, pytest.raises(NoPermissionError):
                    user.execute_command(call, key, *arguments)
                words = ", ".join(f"'{word}'" for word in (call, key, *arguments))
                with role_server.user(name) as user, pytest.raises(ResponseError):
                    user.execute_command("EVAL", f"return redis.call({words})", 0)
    assert role_server.every.client.hgetall("other:{0}:jobs") == {b"x": b"y"}
    assert not role_server.every.client.exists(PREFIX, f"x{PREFIX}:a", f"{PREFIX}-2:{{0}}:jobs")


WRITES = [
    *(("SET", "1"), ("HSET", "f", "1"), ("HDEL", "f"), ("ZADD", "1", "m"), ("ZREM", "m"), ("RPUSH", "1"), ("LPOP",)),
    *(("DEL",), ("UNLINK",), ("SADD", "m"), ("EXPIRE", "1"), ("HINCRBY", "f", "1"), ("RENAME", f"{PREFIX}:b")),
]


@pytest.mark.parametrize("name", ROLES)
def test_a_script_of_a_roles_own_writes_no_more_than_the_rule_allows(name: str, role_server: RoleServer) -> None:
    for command, *arguments in WRITES:
        key = f"{PREFIX}:{{0}}:{name}-{command}"
        text = f"return redis.call({', '.join(map(repr, (command, key, *arguments)))})"
        with role_server.user(name) as user:
            if command in ROLES[name].commands:
                user.execute_command("EVAL", text, 0)
            else:
                with pytest.raises(ResponseError):
                    user.execute_command("EVAL", text, 0)
    if name == "view":
        assert not role_server.every.client.keys(f"{PREFIX}:{{0}}:view-*")


def test_a_rule_allows_another_database_and_a_client_name(role_server: RoleServer) -> None:
    named: Any = {"url": role_server.url("producer").replace("/0", "/3"), "client_name": "shop"}
    apis = ShardApis(named, PREFIX=PREFIX)
    try:
        assert apis.add()
        known = [(one["user"], one["db"], one["name"]) for one in role_server.every.client.client_list()]
        assert ("producer", "3", "shop") in known
    finally:
        apis.close()
