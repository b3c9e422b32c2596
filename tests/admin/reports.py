"""Status reports of dispatchers and workers, written by the test itself."""

from collections.abc import Iterator, Sequence
from typing import Any

from django_delayq.job.ending import EndingRow
from django_delayq.metrics import MINUTE_US, MetricsBuffer
from django_delayq.store.process_reports import ProcessReports
from tests.shard_apis import ShardApis


def tell(
    stock: ShardApis,
    *,
    kind: str = "worker",
    code: bytes = b"W" * 8,
    queue: str = "default",
    task: str = "tests.sample_app.tasks.noop",
    done: int = 0,
    retried: int = 0,
    dead: int = 0,
    expired: int = 0,
    dropped: int = 0,
    lag_us: int = 5_000,
    run_us: int = 200_000,
    endings: Sequence[EndingRow] = (),
    **said: Any,
) -> None:
    """Report of one process: what it says of itself, and attempts that ended since the last time."""
    tally = MetricsBuffer()
    for name, number in (("done", done), ("retried", retried), ("dead", dead)):
        for _ in range(number):
            tally.count_attempt(name, queue=queue, task=task, lag_us=lag_us, run_us=run_us)
    for name, number in (("expired", expired), ("dropped", dropped)):
        for _ in range(number):
            tally.count_attempt(name, queue=queue, task=task)
    ProcessReports(stock.shard).report(code, kind, {"name": "web1:4411", **said}, tally.take(), endings)


def tell_for_minutes(stock: ShardApis) -> Iterator[int]:
    """Report twice in each of several minutes, three runs each time; yield after each minute the runs so far.

    The clock is set back once.
    """
    for number, minutes in enumerate((0, 0, 1, 0, 5, -3, 0, 3, 0), 1):
        stock.clock.advance(minutes * MINUTE_US)
        for _ in range(2):
            tell(stock, queue="mail", task="shop.remind", done=3, lag_us=600, run_us=5_000)
        yield 6 * number
