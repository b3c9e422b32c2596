"""Eviction: under a policy that may drop waiting jobs neither command starts, and both say which one would do."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import get_store
from django_delayq.private_redis import PrivateRedis
from tests.processes import Processes

POLICIES = [f"{keys}-{choice}" for keys in ("allkeys", "volatile") for choice in ("lru", "lfu", "random")]
POLICIES.append("volatile-ttl")
COMMANDS = ["run_dispatcher", "run_worker"]


def test_neither_command_starts_under_a_policy_that_evicts(
    start_redis: Callable[..., PrivateRedis], delayq_settings: Any
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    with server.client() as client:
        for policy in POLICIES:
            client.config_set("maxmemory-policy", policy)
            for command in COMMANDS:
                with pytest.raises(CommandError, match=f"{policy}.*noeviction"):
                    call_command(command)
        client.config_set("maxmemory-policy", "noeviction")
        assert get_store().check_server() == ""


def test_both_commands_start_where_nothing_is_evicted(processes: Processes) -> None:
    # Seven policies are refused above; this is the eighth.
    dispatcher, worker = processes.dispatcher(), processes.worker()
    assert (dispatcher.end(), worker.end()) == (0, 0)
    assert "maxmemory-policy" not in dispatcher.output + worker.output
