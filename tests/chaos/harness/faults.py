"""Faults: what a fault run does to processes, to Redis, and to the network between them, by name.

A fault that stops a process for a while is recorded as an outage, which can explain a repeated run. A cut explains only
the loss of the confirmation of a claim, which is sent once and never repeated.
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
from tests.chaos.harness.case import Outage
from tests.chaos.harness.supervisor import DISPATCHER, WORKER, Supervisor
from tests.chaos.network.proxy import Proxy


@dataclass(kw_only=True)
class FaultContext:
    """The objects that faults act on, and the record of what they did."""

    server: LocalRedisServer
    supervisor: Supervisor
    proxy: Proxy | None
    rng: random.Random
    lease: float
    #: Waits for that many seconds, and meanwhile restarts ended processes.
    pause: Callable[[float], None]
    outages: list[Outage] = field(default_factory=list)
    cuts: list[Outage] = field(default_factory=list)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Record that connections are cut inside the block."""
        begin = time.time()
        yield
        self.cuts.append(Outage(begin=begin, end=time.time()))

    @contextmanager
    def outage(self, pid: int = 0) -> Iterator[None]:
        """Record that one process, or all of them, cannot run or reach Redis inside the block."""
        begin = time.time()
        yield
        self.outages.append(Outage(begin=begin, end=time.time(), pid=pid))

    @property
    def network(self) -> Proxy:
        """The proxy. The plan must enable it."""
        assert self.proxy is not None, "the plan of this fault run has no proxy"
        return self.proxy

    def pause_between(self, shortest: float, longest: float) -> None:
        """Wait for a random time between two limits."""
        self.pause(self.rng.uniform(shortest, longest))


# Processes


def kill_worker(context: FaultContext) -> None:
    """Kill a worker, alone or with its process group, at any time of its life."""
    context.supervisor.kill(context.supervisor.pick(WORKER, context.rng), group=context.rng.random() < 0.3)


def kill_dispatcher(context: FaultContext) -> None:
    """Kill a dispatcher."""
    context.supervisor.kill(context.supervisor.pick(DISPATCHER, context.rng), group=False)


def freeze_worker(context: FaultContext) -> None:
    """Stop a worker for longer than its leases, then resume it."""
    command = context.supervisor.pick(WORKER, context.rng).command
    with context.outage(command.pid):
        command.send(signal.SIGSTOP)
        context.pause_between(1.2 * context.lease, 2 * context.lease)
        command.send(signal.SIGCONT)


# Redis


def cut_clients(context: FaultContext) -> None:
    """Close all connections from the server's side."""
    with context.server.client() as client, context.cut():
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def flush_scripts(context: FaultContext) -> None:
    """Flush all scripts of the server."""
    with context.server.client() as client:
        client.script_flush()


def restart_redis(context: FaultContext) -> None:
    """Kill the server and start it again with the data on its disk."""
    with context.outage():
        context.server.kill()
        context.pause_between(0, 1.5)
        context.server.start()


def keep_redis_busy(context: FaultContext) -> None:
    """Block the server with an endless script, then kill the script."""
    with context.server.client() as client, context.server.client() as rescuer, context.outage():
        client.config_set("lua-time-limit", 100)

        def run() -> None:
            with suppress(redis_errors.ResponseError):
                client.eval("while true do end", 0)

        script = threading.Thread(target=run)
        script.start()
        context.pause_between(1, 3)
        rescuer.script_kill()
        script.join()


def fill_memory(context: FaultContext) -> None:
    """Exceed the server's maxmemory: new jobs are refused, everything else continues."""
    with context.server.client() as client:
        client.config_set("maxmemory", 1)
        context.pause_between(1, 3)
        client.config_set("maxmemory", 0)


def demote_redis(context: FaultContext) -> None:
    """Make the server a read-only replica of a missing primary, then a primary again."""
    with context.server.client() as client, context.outage():
        # Nothing listens on port 1, so the server has no data to copy.
        client.replicaof("127.0.0.1", "1")
        context.pause_between(1, 3)
        client.replicaof("NO", "ONE")


# The network


def cut_network(context: FaultContext) -> None:
    """Cut all connections."""
    with context.cut():
        context.network.cut()


def refuse_connections(context: FaultContext) -> None:
    """Cut all connections and refuse new ones for a while."""
    with context.outage():
        context.network.refuse()
        context.network.cut()
        context.pause_between(1, 4)
        context.network.accept()


def hold_network(context: FaultContext) -> None:
    """Pass no byte for a while, and keep all connections open."""
    with context.outage():
        context.network.hold()
        context.pause_between(1, 6)
        context.network.release()


def slow_network(context: FaultContext) -> None:
    """Delay all bytes for a while. No reply is lost."""
    context.network.delay(0.1, 0.08)
    context.pause_between(1, 3)
    context.network.restore()
    # Slow requests get their replies before the next fault.
    context.pause(1.0)


def drop_replies(context: FaultContext) -> None:
    """Drop all replies, then cut the connections: the requests ran, and no client knows it."""
    with context.outage():
        context.network.drop_replies()
        context.pause_between(0.2, 3)
        context.network.restore()
        context.network.cut()


def cut_reply(context: FaultContext) -> None:
    """Cut a connection in the middle of a reply."""
    with context.cut():
        context.network.cut_reply_after(context.rng.randrange(20))
        context.pause_between(0, 0.3)
        context.network.restore()


FAULTS: dict[str, Callable[[FaultContext], None]] = {
    fault.__name__: fault
    for fault in (
        *(kill_worker, kill_dispatcher, freeze_worker),
        *(cut_clients, flush_scripts, restart_redis, keep_redis_busy, fill_memory, demote_redis),
        *(cut_network, refuse_connections, hold_network, slow_network, drop_replies, cut_reply),
    )
}
