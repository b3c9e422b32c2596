"""Set aside: what a claim costs with 1,000 recovered jobs at the head of its queue that the worker may not run.

Run in a venv with the tests' dependencies: python -m benchmarks.set_aside [CLAIMS], 5,000 by default. Claims of both
queues are timed in turns, so that the machine's noise meets both.
"""

import statistics
import sys
from time import perf_counter

import django
from django.conf import settings

from django_delayq.testing.local_redis import LocalRedisServer

#: Recovered jobs, and jobs of one batch.
ASIDE, BATCH = 1_000, 250
QUEUES = ("plain", "default")


def measure(claims: int) -> tuple[float, float]:
    """Return the median µs of a claim, without and with recovered jobs in its queue."""
    from django_delayq.job.attempts import NO_ATTEMPTS
    from django_delayq.job.outcome import Action
    from tests.shard_apis import ShardApis, one_more, settlement

    with LocalRedisServer() as server:
        apis = ShardApis(server.url)
        drafts = [apis.draft() for _ in range(ASIDE)]
        for at in range(0, ASIDE, BATCH):
            apis.enqueue(*drafts[at : at + BATCH])
        record = one_more(NO_ATTEMPTS, suspect=True).pack()
        apis.client.hset(apis.keys("attempts"), mapping={draft.job.raw_id: record for draft in drafts})
        worker = apis.worker()
        while worker.take(1, may_recover=False).has_more:
            # So many are set aside in one step.
            pass
        assert len(apis.recovered()) == ASIDE
        spent: dict[str, list[float]] = {queue: [] for queue in QUEUES}
        for turn in range(claims):
            if turn % BATCH == 0:
                for queue in QUEUES:
                    apis.enqueue(*[apis.draft(queue=queue) for _ in range(BATCH)])
            for queue in QUEUES if turn % 2 else reversed(QUEUES):
                began = perf_counter()
                (claim,) = worker.take(1, queue, may_recover=False).claims
                spent[queue].append(perf_counter() - began)
                worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE)])
        apis.close()
    without, with_them = (statistics.median(spent[queue]) * 1e6 for queue in QUEUES)
    return without, with_them


def main() -> None:
    """Print both costs and their ratio."""
    settings.configure(INSTALLED_APPS=["django_delayq"], DELAYQ={}, SECRET_KEY="-", USE_TZ=True)
    django.setup()
    without, with_them = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
    print(f"a claim: {without:.0f} µs; with {ASIDE:,} set aside {with_them:.0f} µs, {with_them / without:.2f} x")


if __name__ == "__main__":
    main()
