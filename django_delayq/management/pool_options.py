"""Pool options: checks of `run_worker --pool` and the options that go with it, and the pool they describe."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from django_delayq.store import forward_stream
from django_delayq.store.store import Store
from django_delayq.worker.execution import forward
from django_delayq.worker.pools.asyncio import AsyncioPool
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.processes import ProcessRunner
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import InThreadRunner, ThreadPool

POOLS = ("threads", "processes", "asyncio", "forwarder")
#: Value of `--forward-to` for the stream in our own Redis.
STREAM = "stream"
_MIB = 1024 * 1024


def check_pool(options: dict[str, Any]) -> None:
    """Raise CommandError for options that are illegal or exclude each other."""
    if options["processes"] < 1:
        raise CommandError(f"--processes must be at least 1, got {options['processes']}")
    for name in ("drain", "reload"):
        if options["processes"] > 1 and options[name]:
            raise CommandError(f"--{name} is for one process: leave --processes out")
    if (options["pool"] == "forwarder") is (options["forward_to"] is None):
        raise CommandError("--pool forwarder and --forward-to go together: a dotted path, or 'stream'")
    for name in ("max_jobs", "max_memory"):
        option, value = f"--{name.replace('_', '-')}", options[name]
        if value is None:
            continue
        if options["pool"] != "processes":
            raise CommandError(
                f"{option} needs --pool processes: the pool {options['pool']!r} has no process to replace"
            )
        if value < 1:
            raise CommandError(f"{option} must be at least 1, got {value}")


def _accept(options: dict[str, Any], store: Store) -> Callable[[dict[str, Any]], object]:
    if options["forward_to"] == STREAM:
        # Readers read the streams of all shards. The stream of the job's own shard spreads the load evenly.
        shards = store.shards
        return lambda job: forward_stream.append(shards[int(job["id"].rpartition("-")[2]) % len(shards)], job)
    try:
        accept = import_string(options["forward_to"])
    except ImportError as error:
        raise CommandError(f"--forward-to {options['forward_to']} cannot be imported: {error}") from error
    if not callable(accept):
        raise CommandError(f"--forward-to {options['forward_to']} is not a function")
    return accept  # type: ignore[no-any-return]


def make_pool(options: dict[str, Any], store: Store, *, size: int) -> Pool:
    """Return the pool that the options describe."""
    if options["pool"] == "threads":
        return ThreadPool(size, recovery=RecoveryRunner())
    if options["pool"] == "asyncio":
        return AsyncioPool(size)
    if options["pool"] == "forwarder":
        forwarder = InThreadRunner(partial(forward, accept=_accept(options, store)))
        return ThreadPool(size, forwarder, recovery=None)
    max_memory = options["max_memory"] and options["max_memory"] * _MIB
    runner = ProcessRunner(max_jobs=options["max_jobs"], max_memory=max_memory)
    return ThreadPool(size, runner, recovery=RecoveryRunner())
