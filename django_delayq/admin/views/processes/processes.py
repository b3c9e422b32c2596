"""Processes: dispatchers and workers, their status, and which of them are lost."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.display.text import printable
from django_delayq.store.queries.snapshot import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process, as of its last report."""

    process: Process
    lost: bool
    now_us: int
    lease_us: int

    @property
    def name(self) -> str:
        """Host and process id; its code before the first report."""
        return printable(self.process.name) or self.process.code.hex()

    @property
    def version(self) -> str:
        """Its version of django_delayq."""
        return printable(self.process.version)

    @property
    def longest_us(self) -> int | None:
        """For how long the oldest of its jobs has run."""
        oldest_us = self.process.oldest_us
        return None if oldest_us is None or self.lost else max(0, self.now_us - oldest_us)

    @property
    def code(self) -> str:
        """Its name in forms."""
        return self.process.code.hex()

    @property
    def queues(self) -> list[tuple[str, str]]:
        """The queues it serves, in order: displayed name, with its weight if it has one, name in URLs; empty = all."""
        queues, weights = self.process.queues, self.process.weights
        ends = [f"={weight}" for weight in weights] or [""] * len(queues)
        return [(printable(name) + end, url_name(name)) for name, end in zip(queues, ends, strict=True)]

    @property
    def again_us(self) -> int:
        """When the leases of a lost worker ended, so that its jobs could be claimed again (µs since the epoch)."""
        return self.process.seen_us + self.lease_us


def show(page: PageContext) -> PageResponse:
    """Return the page; one round trip."""
    now = page.snapshot
    alive = {(each.shard, each.code) for each in page.alive}
    found = [
        ProcessRow(
            process=each,
            lost=(each.shard, each.code) not in alive,
            now_us=now.now_us,
            lease_us=page.store.config.worker.lease_us,
        )
        for each in now.processes
    ]
    found.sort(key=lambda line: (line.lost, line.name, line.process.shard))
    return page.render(
        "processes.html",
        tab="processes",
        title=_("Workers & dispatchers"),
        dispatchers=[line for line in found if line.process.kind == "dispatcher"],
        workers=[line for line in found if line.process.kind == "worker"],
        sharded=page.store.shard_count > 1,
    )
