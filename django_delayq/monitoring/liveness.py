"""Liveness: whether somebody promotes, plants and claims right now, for `delayq_check --alive`.

It reads one snapshot of each shard, so it is cheap enough to run every few seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from django_delayq.clock import SECOND_US
from django_delayq.display.text import printable
from django_delayq.exceptions import see
from django_delayq.monitoring.store_view import StoreView
from django_delayq.store.client.reading import Reading
from django_delayq.store.promotion import Promotion
from django_delayq.store.store import Store

#: What is late by less may be a process that restarts.
_SHORTEST_US = 5 * SECOND_US
#: Most projects that are listed.
_MOST_PROJECTS = 5
_SEE = see("troubleshooting#nothing-runs")


@dataclass(frozen=True, slots=True)
class Liveness:
    """What stands still, and what is only late."""

    #: That no process runs, or that nobody promotes or plants; each with its cure.
    dispatch: list[str]
    #: The queues with due jobs that no worker serves, each with its cure.
    unserved: list[str]
    #: The servers that do not answer.
    missing: list[str]
    #: That processes of several projects have the same store.
    projects: list[str]
    warnings: list[str]

    @property
    def still(self) -> list[str]:
        """All that stands still."""
        return [*self.dispatch, *self.unserved]

    @property
    def faults(self) -> list[str]:
        """All that is wrong now."""
        return [*self.missing, *self.still]


class _Project(NamedTuple):
    """The processes that have secret keys in common."""

    keys: frozenset[str]
    #: One of its processes, as a person recognizes it.
    example: str


def check_liveness(store: Store) -> Liveness:
    """Return what is late by more than 5 s and two sweeps, and which servers do not answer. Two round trips.

    Raises `StoreError` if none answers.
    """
    late_us, view = max(_SHORTEST_US, 2 * store.config.dispatcher.sweep_us), StoreView(store)
    view.load_snapshot(facts=True)
    return Liveness(
        missing=[*map(str, view.reads.missing)],
        dispatch=[*_no_process(view), *_dispatch(view, late_us)],
        unserved=[*_unserved(view, late_us)],
        projects=[*_several_projects(view)],
        warnings=[*_unreadable(view), *_busy(view, late_us)],
    )


def _no_process(view: StoreView) -> Iterator[str]:
    if not view.alive:
        yield f"No dispatcher and no worker is running: start run_dispatcher and run_worker. {_SEE}"


def _several_projects(view: StoreView) -> Iterator[str]:
    projects: list[_Project] = []
    for process in view.alive:
        keys = frozenset(process.project_keys)
        # During a rotation of keys, two processes may have none in common, and each has one in common with a third.
        same = [each for each in projects if each.keys & keys]
        if keys:
            example = same[0].example if same else f"{process.project or process.kind} at {process.name}"
            merged = _Project(keys.union(*(each.keys for each in same)), example)
            projects = [*(each for each in projects if each not in same), merged]
    if len(projects) > 1:
        prefix, examples = view.store.config.prefix, sorted(printable(each.example) for each in projects)
        listed = ", ".join(examples[:_MOST_PROJECTS])
        yield (
            f"Processes with different SECRET_KEYs use the prefix {prefix!r} on this Redis ({listed}). "
            f"Each may run jobs of the others: give each project a PREFIX of its own. "
            f"{see('troubleshooting#two-projects-share-a-prefix')}"
        )


def _dispatch(view: StoreView, late_us: int) -> Iterator[str]:
    store, now_us = view.store, view.now_us

    def of_shard(shard: int) -> Reading[tuple[int | None, int | None]]:
        promoted_us = yield from Promotion(store.shards[shard]).next_promotion()
        planting_us = yield from store.schedules(shard).read_next_planting()
        return promoted_us, planting_us

    for shard, (promoted_us, planting_us) in view.reads.read(of_shard).items():
        place = f" in {store.shards[shard].label}" if store.shard_count > 1 else ""
        if promoted_us is not None and now_us - promoted_us > late_us:
            yield f"Nobody has promoted jobs{place} for {_seconds(now_us - promoted_us)}: start run_dispatcher. {_SEE}"
        if planting_us is not None and now_us - planting_us > late_us:
            late = _seconds(now_us - planting_us)
            yield f"A recurring schedule{place} has had no new job for {late}: start run_dispatcher. {_SEE}"


def _unserved(view: StoreView, late_us: int) -> Iterator[str]:
    for name, oldest_us, is_served in _waiting(view, late_us):
        if not is_served:
            waited = _seconds(view.now_us - oldest_us)
            yield (
                f"Jobs of the queue {printable(name)} wait for {waited}, and no worker serves it: start run_worker. "
                f"{_SEE}"
            )


def _busy(view: StoreView, late_us: int) -> Iterator[str]:
    for name, oldest_us, is_served in _waiting(view, late_us):
        if is_served:
            waited = _seconds(view.now_us - oldest_us)
            yield (
                f"Jobs of the queue {printable(name)} wait for {waited}: its workers are busy. Start more of them. "
                f"{see('troubleshooting#jobs-start-late')}"
            )


def _unreadable(view: StoreView) -> Iterator[str]:
    # Not counted if a shard has many schedules. `delayq_check` without --alive reads them all.
    if number := view.snapshot.unreadable_schedules:
        yield (
            f"{number} recurring schedules have no next job, because the dispatcher cannot read "
            f"them: see delayq_schedules --state unreadable."
        )


def _waiting(view: StoreView, late_us: int) -> Iterator[tuple[str, int, bool]]:
    """Yield each queue whose next job is late, since when, and whether a living worker serves it."""
    for name, queue in view.snapshot.queues.items():
        oldest_us = queue.oldest_ready_us
        if oldest_us is not None and not queue.paused and view.now_us - oldest_us > late_us:
            yield name, oldest_us, bool(view.workers_of(name))


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:,.0f} s"
