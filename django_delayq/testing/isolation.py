"""Stage: what a test's jobs live on: a store of their own under a clock that is turned.

Keys above every setting lead there, so nothing a test or a setting does can reach another Redis.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from unittest.mock import patch

from django_delayq.clock import use_clock
from django_delayq.conf import settings
from django_delayq.job.ids import restart_sequence
from django_delayq.store.store import Store, get_store
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.testing.server import server_url


@contextmanager
def private_store(clock: FakeClock) -> Iterator[None]:
    """Let all stores of this process be at a prefix of their own under `clock`; nothing of them is left afterwards."""
    prefix = f"test-{token_hex(6)}"
    clock_before = use_clock(clock)
    try:
        with patch.dict(settings.overrides, REDIS=server_url(), PREFIX=prefix):
            settings.drop_config()
            first = get_store()
            try:
                yield
            finally:
                _sweep(first, prefix)
    finally:
        use_clock(clock_before)
        settings.drop_config()
        restart_sequence()


def stores() -> list[Store]:
    """Return every store of this process: DELAYQ's, and those of aliases in TASKS that have one of their own."""
    shared = settings.sharing_alias()
    return [get_store(), *(get_store(alias) for alias in settings.backends() if alias != shared)]


@contextmanager
def redis_unavailable() -> Iterator[None]:
    """Let no store of this process reach its Redis; afterwards all is there as it was."""
    try:
        # A path that nobody can make a socket at: refused at once.
        with patch.dict(settings.overrides, REDIS="unix:///dev/null/redis.sock"):
            settings.drop_config()
            yield
    finally:
        settings.drop_config()


def _sweep(store: Store, prefix: str) -> None:
    client = store.shards[0].client
    # The stores of further aliases begin with the same.
    keys = list(client.scan_iter(f"{prefix}*", 1_000))
    for at in range(0, len(keys), 1_000):
        client.unlink(*keys[at : at + 1_000])
    store.close()
