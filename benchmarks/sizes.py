"""Sizes: the numbers of jobs, seconds and rounds of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a run; the defaults are those of the whole one."""

    rounds: int = 3
    enqueue: int = 5_000
    #: No-op jobs of a drain and of a bulk call.
    jobs: int = 20_000
    #: Seconds a drain may take. Jobs that ran by then count, unless one ran twice.
    limit: float = 30.0
    spread: int = 2_000
    spread_seconds: float = 10.0
    instant: int = 10_000
    #: Seconds that a thousand delayed jobs may take to enqueue before the first is due.
    lead: float = 1.2
    trips: int = 200
    #: Seconds for which idle processes are observed.
    watch: float = 20.0
    #: Scheduled jobs of `waiting`: ours, and the peers', some of which store only 1,000 a second.
    waiting: int = 1_000_000
    waiting_peers: int = 100_000
    waits_threads: int = 4_000
    waits_asyncio: int = 20_000
    #: Jobs that wait 0, 0.1, 1 and 10 ms.
    sleeps: tuple[int, int, int, int] = (20_000, 20_000, 10_000, 2_000)
    #: Jobs that use the ORM, and requests that write a row and enqueue one.
    django_jobs: int = 3_000
    django_requests: int = 3_000


WHOLE = Sizes()
SHORT = Sizes(
    rounds=1,
    enqueue=2_000,
    jobs=5_000,
    limit=10.0,
    spread=400,
    spread_seconds=2.0,
    instant=2_000,
    trips=50,
    watch=5.0,
    waiting=20_000,
    waiting_peers=5_000,
    waits_threads=800,
    waits_asyncio=4_000,
    sleeps=(2_000, 2_000, 1_000, 200),
    django_jobs=500,
    django_requests=300,
)
