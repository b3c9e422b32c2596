"""Declarations: the recurring schedules that the code and the settings of a project name for one store."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from django_delayq import runtime
from django_delayq.clock import estimated_us, moment_us
from django_delayq.recurring.declaration import Recurring
from django_delayq.store.digests import schedule_id
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.store import Store
from django_delayq.task import registry


@dataclass(frozen=True, slots=True)
class Declarations:
    """What the code of this process declares for one shard."""

    definitions: Sequence[Definition]
    #: Why schedules that it declares are not stored: a text, and the error that it comes from.
    faults: Sequence[tuple[str, Exception | None]]
    #: Ids of the schedules that stay as they are: it cannot make them, or they are not of the chosen tasks.
    kept: Sequence[bytes]
    #: Equal for equal declarations, 16 bytes.
    digest: bytes


def declared_schedules(store: Store) -> Iterator[tuple[str, Any | None, Recurring]]:
    """Yield the name of the task, the task and each schedule that is declared for a store. No round trip.

    The task is None if this process does not know it, or if its jobs go to another store. A schedule of RECURRING
    replaces that of the task itself with the same name.
    """
    found: dict[tuple[str, str], tuple[Any | None, Recurring]] = {}
    for each in registry.tasks():
        task = _configured(each)
        if task.schedules.backend == store.alias:
            found |= {(task.name, recurring.name): (task, recurring) for recurring in task.recurring}
    for entry in store.config.tasks.recurring.values():
        task = registry.find(entry.task)
        if task is None or task.schedules.backend != store.alias:
            found[entry.task, entry.recurring.name] = None, entry.recurring
        else:
            found[task.name, entry.recurring.name] = _configured(task), entry.recurring
    for (name, _), (task, recurring) in found.items():
        yield name, task, recurring


def _configured(task: Any) -> Any:
    # The other checks report a policy that names no exception.
    with suppress(ValueError):
        return task.as_configured()
    return task


def has_ended(recurring: Recurring, *, now_us: int) -> bool:
    """Return whether the end of a schedule has passed."""
    return recurring.end is not None and moment_us(recurring.end, name="end") <= now_us


def make_declarations(store: Store, shard: int, *, tasks: Collection[str] = ()) -> Declarations:
    """Return what is declared for a shard. A schedule that cannot be made hurts no other.

    One whose end has passed is not declared any more. With `tasks`, the schedules of other tasks stay as they are.
    """
    definitions, kept, faults = list[Definition](), list[bytes](), list[tuple[str, Exception | None]]()
    now_us = estimated_us(runtime.current().clock)
    for name, task, recurring in declared_schedules(store):
        id = schedule_id(name, recurring.name)
        if has_ended(recurring, now_us=now_us) or store.layout.home(id) != shard:
            continue
        if tasks and name not in tasks:
            kept.append(id)
            continue
        if task is None:
            reason = f"no task of this store is registered as {name!r}"
            faults.append((f"Recurring schedule {recurring.name!r} is not stored: {reason}", None))
            kept.append(id)
            continue
        try:
            definitions.append(task.schedules.define(recurring.options))
        except Exception as error:
            # A middleware of the project may raise anything.
            faults.append((f"Recurring schedule {recurring.name!r} of {name} is not stored", error))
            kept.append(id)
    definitions.sort(key=lambda definition: definition.id)
    digest = blake2b(b"".join(sorted(kept)), digest_size=16)
    for definition in definitions:
        digest.update(definition.encode())
    return Declarations(definitions, faults, kept, digest.digest())
