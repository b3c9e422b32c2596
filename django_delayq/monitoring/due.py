"""Due: how many scheduled jobs of all shards become due from one moment to the next."""

from collections.abc import Iterable, Mapping, Sequence

from django_delayq.monitoring.store_view import StoreView


def due_in_all_shards(view: StoreView, edges: Sequence[int], queues: Sequence[str]) -> dict[str, list[int]]:
    """Return how many jobs of each queue that has some become due from each edge to before the next; one round trip."""
    found = view.reads.read(lambda shard: view.store.dashboard(shard).read_due_histogram(edges, queues=queues))
    return summed(found.values())


def summed(histograms: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Return the numbers of several shards together."""
    found: dict[str, list[int]] = {}
    for histogram in histograms:
        for name, counts in histogram.items():
            found[name] = [a + b for a, b in zip(found.get(name, [0] * len(counts)), counts, strict=True)]
    return found
