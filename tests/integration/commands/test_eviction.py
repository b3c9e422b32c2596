"""Eviction: neither command starts under a policy that may drop waiting jobs, and the error names a safe policy."""

import re
from collections.abc import Callable
from typing import Any

from django_delayq import get_store
from django_delayq.testing.local_redis import LocalRedisServer
from tests.subprocesses import Processes

POLICIES = [f"{keys}-{choice}" for keys in ("allkeys", "volatile") for choice in ("lru", "lfu", "random")]
POLICIES.append("volatile-ttl")
COMMANDS = ["run_dispatcher", "run_worker"]


def test_every_policy_that_evicts_is_refused(
    start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    with server.client() as client:
        for policy in POLICIES:
            client.config_set("maxmemory-policy", policy)
            [refusal] = get_store().check_servers().fatal()
            assert re.search(f"{policy}.*noeviction", refusal)
        # Seven policies are refused; this is the eighth.
        client.config_set("maxmemory-policy", "noeviction")
        check = get_store().check_servers()
        assert [*check.fatal(), *check.at_start()] == []


def test_neither_command_starts_under_a_policy_that_evicts(
    start_redis: Callable[..., LocalRedisServer], processes: Processes
) -> None:
    processes.configure(REDIS=start_redis(options={"maxmemory-policy": "volatile-lru"}).url)
    for command in [processes.start(name) for name in COMMANDS]:
        assert command.wait() == 1
        [line] = command.output.splitlines()
        assert "volatile-lru" in line
        assert "noeviction" in line


def test_both_commands_start_under_a_policy_that_evicts_nothing(processes: Processes) -> None:
    dispatcher, worker = processes.dispatcher(), processes.worker()
    assert (dispatcher.end(), worker.end()) == (0, 0)
    assert "maxmemory-policy" not in dispatcher.output + worker.output
