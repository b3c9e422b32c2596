"""Faults: what a storm does to processes, to Redis, and to the network between them, by name.

A fault that stops somebody for a while is a trouble, which the judge takes for an excuse. A mere cut excuses only what
is sent once and not again: the mark that confirms a claim.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from redis import exceptions as redis_errors

from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.case import Trouble
from tests.chaos.proxy import Proxy
from tests.chaos.supervisor import DISPATCHER, WORKER, Supervisor


@dataclass(kw_only=True)
class FaultContext:
    """What faults are done to."""

    server: LocalRedisServer
    crew: Supervisor
    proxy: Proxy | None
    chance: random.Random
    lease: float
    #: Lets so many seconds pass, with the crew tended.
    rest: Callable[[float], None]
    troubles: list[Trouble] = field(default_factory=list)
    cuts: list[Trouble] = field(default_factory=list)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Note down that connections are cut inside."""
        begin = time.time()
        yield
        self.cuts.append(Trouble(begin=begin, end=time.time()))

    @contextmanager
    def trouble(self, pid: int = 0) -> Iterator[None]:
        """Note down that a process, or all of them, cannot run or reach Redis inside."""
        begin = time.time()
        yield
        self.troubles.append(Trouble(begin=begin, end=time.time(), pid=pid))

    @property
    def network(self) -> Proxy:
        """The proxy, which the plan must ask for."""
        assert self.proxy is not None, "the plan of this storm has no proxy"
        return self.proxy

    def last(self, shortest: float, longest: float) -> None:
        """Let a fault last."""
        self.rest(self.chance.uniform(shortest, longest))


# Processes


def kill_worker(ground: FaultContext) -> None:
    """Kill a worker, alone or with all it started, at any moment of its life."""
    ground.crew.kill(ground.crew.pick(WORKER, ground.chance), group=ground.chance.random() < 0.3)


def kill_dispatcher(ground: FaultContext) -> None:
    """Kill a dispatcher."""
    ground.crew.kill(ground.crew.pick(DISPATCHER, ground.chance), group=False)


def freeze_worker(ground: FaultContext) -> None:
    """Stop a worker for longer than its leases, then let it go on."""
    command = ground.crew.pick(WORKER, ground.chance).command
    with ground.trouble(command.pid):
        command.send(signal.SIGSTOP)
        ground.last(1.2 * ground.lease, 2 * ground.lease)
        command.send(signal.SIGCONT)


# Redis


def cut_clients(ground: FaultContext) -> None:
    """Let the server close all connections."""
    with ground.server.client() as client, ground.cut():
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def flush_scripts(ground: FaultContext) -> None:
    """Let the server forget all scripts."""
    with ground.server.client() as client:
        client.script_flush()


def restart_redis(ground: FaultContext) -> None:
    """Kill the server and start it again on what is on its disk."""
    with ground.trouble():
        ground.server.kill()
        ground.last(0, 1.5)
        ground.server.start()


def keep_redis_busy(ground: FaultContext) -> None:
    """Let somebody's script run on and on, until it is killed."""
    with ground.server.client() as client, ground.server.client() as rescuer, ground.trouble():
        client.config_set("lua-time-limit", 100)

        def run() -> None:
            with suppress(redis_errors.ResponseError):
                client.eval("while true do end", 0)

        script = threading.Thread(target=run)
        script.start()
        ground.last(1, 3)
        rescuer.script_kill()
        script.join()


def fill_memory(ground: FaultContext) -> None:
    """Let the server be over its maxmemory: nothing new is accepted, all else goes on."""
    with ground.server.client() as client:
        client.config_set("maxmemory", 1)
        ground.last(1, 3)
        client.config_set("maxmemory", 0)


def demote_redis(ground: FaultContext) -> None:
    """Let the server be a replica of nobody, which takes no writes, then a primary again."""
    with ground.server.client() as client, ground.trouble():
        # Nobody listens on port 1: there is nothing to copy its data from.
        client.replicaof("127.0.0.1", "1")
        ground.last(1, 3)
        client.replicaof("NO", "ONE")


# The network


def cut_network(ground: FaultContext) -> None:
    """Cut all connections."""
    with ground.cut():
        ground.network.cut()


def refuse_connections(ground: FaultContext) -> None:
    """Cut all connections and take no new ones for a while."""
    with ground.trouble():
        ground.network.refuse()
        ground.network.cut()
        ground.last(1, 4)
        ground.network.accept()


def hold_network(ground: FaultContext) -> None:
    """Be silent for a while, with all connections open."""
    with ground.trouble():
        ground.network.hold()
        ground.last(1, 6)
        ground.network.release()


def slow_network(ground: FaultContext) -> None:
    """Be slow for a while: late answers, none lost."""
    ground.network.delay(0.1, 0.08)
    ground.last(1, 3)
    ground.network.mend()
    # What was asked slowly is answered before anything else happens.
    ground.rest(1.0)


def drop_replies(ground: FaultContext) -> None:
    """Swallow all answers, then cut: what was asked was done, and nobody knows."""
    with ground.trouble():
        ground.network.drop_replies()
        ground.last(0.2, 3)
        ground.network.mend()
        ground.network.cut()


def cut_reply(ground: FaultContext) -> None:
    """Cut a connection in the middle of an answer."""
    with ground.cut():
        ground.network.cut_reply_after(ground.chance.randrange(20))
        ground.last(0, 0.3)
        ground.network.mend()


FAULTS: dict[str, Callable[[FaultContext], None]] = {
    fault.__name__: fault
    for fault in (
        *(kill_worker, kill_dispatcher, freeze_worker),
        *(cut_clients, flush_scripts, restart_redis, keep_redis_busy, fill_memory, demote_redis),
        *(cut_network, refuse_connections, hold_network, slow_network, drop_replies, cut_reply),
    )
}
