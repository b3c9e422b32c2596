"""Isolation: a test has a store and a clock of its own.

The overrides stand above every setting, so no test and no setting can reach another Redis.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from django_delayq import runtime
from django_delayq.conf import settings
from django_delayq.job.ids import restart_sequence
from django_delayq.store.store import Store, get_store
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.testing.server import server_url


@contextmanager
def private_store(clock: FakeClock) -> Iterator[None]:
    """Give all stores of this process a prefix of their own and `clock`; their keys are deleted afterwards."""
    prefix = f"test-{token_hex(6)}"
    try:
        with runtime.override(clock=clock, settings={"REDIS": server_url(), "PREFIX": prefix}):
            settings.drop_config()
            first = get_store()
            try:
                yield
            finally:
                _delete_keys(first, prefix)
    finally:
        settings.drop_config()
        restart_sequence()


def stores() -> list[Store]:
    """Return the stores of this process: that of DELAYQ, and those of aliases in TASKS with a store of their own."""
    return [get_store(), *map(get_store, settings.separate_aliases())]


@contextmanager
def redis_unavailable() -> Iterator[None]:
    """Make Redis unreachable for the stores of this process; afterwards their data is unchanged."""
    try:
        # No socket can exist at this path, so a connection is refused at once.
        unreachable = {**runtime.current().settings, "REDIS": "unix:///dev/null/redis.sock"}
        with runtime.override(settings=unreachable):
            settings.drop_config()
            yield
    finally:
        settings.drop_config()


def _delete_keys(store: Store, prefix: str) -> None:
    for node in store.topology.nodes():
        client = node.workers.client
        # The keys of further aliases begin with the same prefix. In a cluster they are of several slots.
        pipeline = client.pipeline(transaction=False)
        for key in client.scan_iter(f"{prefix}*", 1_000):
            pipeline.unlink(key)
        pipeline.execute()
    store.disconnect_idle()
