"""Due: how many scheduled jobs of all shards become due from one moment to the next."""

from collections.abc import Iterable, Mapping, Sequence

from django_delayq.monitoring.store_view import StoreView
from django_delayq.store.client.reading import Reading, together


def due_in_all_shards(
    view: StoreView, wanted: Sequence[Sequence[int]], queues: Sequence[str]
) -> list[dict[str, list[int]]]:
    """Return, for each of several lists of edges, how many jobs of each queue become due from one edge to the next.

    Queues without such jobs are left out. One round trip.
    """

    def of_shard(shard: int) -> Reading[list[dict[str, list[int]]]]:
        dashboard = view.store.dashboard(shard)
        return together([dashboard.read_due_histogram(edges, queues=queues) for edges in wanted])

    by_shard = view.reads.read(of_shard).values()
    return [summed(histograms[number] for histograms in by_shard) for number in range(len(wanted))]


def summed(histograms: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Return the numbers of several shards together."""
    found: dict[str, list[int]] = {}
    for histogram in histograms:
        for name, counts in histogram.items():
            found[name] = [a + b for a, b in zip(found.get(name, [0] * len(counts)), counts, strict=True)]
    return found
