"""Error groups on the pages: those of all shards together, and the ones that a filter means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django_delayq.admin.lists.filters import Filter
from django_delayq.job.errors.error_group import ErrorGroup
from django_delayq.store.queries.error_groups import ErrorGroupCount
from django_delayq.store.queries.job_filter import names_match


@dataclass(slots=True, kw_only=True)
class GroupOfShards:
    """One error group: the failed jobs of all shards that have it."""

    digest: bytes
    #: What they have in common; None if that is nothing, or if this process cannot read it.
    group: ErrorGroup | None
    count: int = 0
    #: When one came first and last, of all that ever came; µs since the epoch, 0 = unknown.
    first_us: int = 0
    last_us: int = 0

    def add(self, each: ErrorGroupCount) -> None:
        """Add the jobs of one shard."""
        self.group = self.group or each.group
        self.count += each.count
        self.first_us = min(self.first_us, each.first_us) if self.first_us and each.first_us else each.first_us
        self.last_us = max(self.last_us, each.last_us)


def joined(counts: Iterable[Sequence[ErrorGroupCount]]) -> Mapping[bytes, GroupOfShards]:
    """Return the groups of several shards by their digests."""
    found: dict[bytes, GroupOfShards] = {}
    for of_shard in counts:
        for each in of_shard:
            found.setdefault(each.digest, GroupOfShards(digest=each.digest, group=each.group)).add(each)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice:
    """The error groups that a filter means by its task, error and group."""

    digests: Sequence[bytes] = field(default_factory=list)
    #: Whether some of their jobs have another task or error, so that each has to be tested.
    is_mixed: bool = False

    @classmethod
    def of(cls, job_filter: Filter, groups: Mapping[bytes, GroupOfShards]) -> "GroupChoice":
        """Return the groups whose jobs can match."""
        wanted = list(groups.values())
        if job_filter.error_group:
            digest = bytes.fromhex(job_filter.error_group)
            wanted = [groups[digest]] if digest in groups else []
        chosen = [each for each in wanted if each.group is None or _matches(each.group, job_filter)]
        has_names = bool(job_filter.task or job_filter.error)
        return cls(
            digests=[each.digest for each in chosen],
            is_mixed=has_names and any(each.group is None for each in chosen),
        )


def _matches(group: ErrorGroup, job_filter: Filter) -> bool:
    task, error = job_filter.task, job_filter.error.removeprefix("builtins.")
    return (not task or names_match(group.task, task)) and (not error or names_match(group.error, error))
