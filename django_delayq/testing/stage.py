"""Stage: what a test's jobs live on: a store of their own under a clock that is turned.

Keys above every setting lead there, so nothing a test or a setting does can reach another Redis.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from unittest.mock import patch

from django_delayq import conf
from django_delayq.clock import use_clock
from django_delayq.job_id import begin_anew
from django_delayq.store.store import Store, get_store
from django_delayq.testing.server import server_url
from django_delayq.testing.turned_clock import TurnedClock


@contextmanager
def private_store(clock: TurnedClock) -> Iterator[None]:
    """Let all stores of this process be at a prefix of their own under `clock`; nothing of them is left afterwards."""
    prefix = f"test-{token_hex(6)}"
    clock_before = use_clock(clock)
    try:
        with patch.dict(conf.forced, REDIS=server_url(), PREFIX=prefix):
            conf.drop_config()
            first = get_store()
            try:
                yield
            finally:
                _sweep(first, prefix)
    finally:
        use_clock(clock_before)
        conf.drop_config()
        begin_anew()


def stores() -> list[Store]:
    """Return every store of this process: DELAYQ's, and those of aliases in TASKS that have one of their own."""
    shared = conf.sharing_alias()
    return [get_store(), *(get_store(alias) for alias in conf.backends() if alias != shared)]


@contextmanager
def nobody_there() -> Iterator[None]:
    """Let no store of this process reach its Redis; afterwards all is there as it was."""
    try:
        # A path that nobody can make a socket at: refused at once.
        with patch.dict(conf.forced, REDIS="unix:///dev/null/redis.sock"):
            conf.drop_config()
            yield
    finally:
        conf.drop_config()


def _sweep(store: Store, prefix: str) -> None:
    client = store.shards[0].client
    # The stores of further aliases begin with the same.
    keys = list(client.scan_iter(f"{prefix}*", 1_000))
    for at in range(0, len(keys), 1_000):
        client.unlink(*keys[at : at + 1_000])
    store.close()
