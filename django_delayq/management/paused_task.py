"""Paused task: what `delayq_pause` and `delayq_resume` do with `--task`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.conf.spelling import did_you_mean
from django_delayq.management.operating import NOT_FOUND, WRONG_OPTIONS, OperatingCommand
from django_delayq.store.operations.limits import LimitOperations
from django_delayq.task import registry


def add_task(parser: CommandParser) -> None:
    """Add --task."""
    text = "In place of queues: all jobs of this task, in every queue; its name or the end of it."
    parser.add_argument("--task", metavar="NAME", help=text)


def check_subject(options: Mapping[str, Any]) -> None:
    """Raise CommandError unless the options name queues or a task, and not both."""
    if options["task"] is None and not options["queues"]:
        raise CommandError("Name one or more queues, or a task with --task.", returncode=WRONG_OPTIONS)
    if options["task"] is not None and (options["queues"] or options["tenant"] is not None):
        text = "--task is for the jobs of the task in every queue: leave the queues and --tenant out"
        raise CommandError(text, returncode=WRONG_OPTIONS)


def change_task(
    command: OperatingCommand,
    verb: tuple[str, str],
    options: Mapping[str, Any],
    change: Callable[[LimitOperations, Sequence[str]], bool],
) -> None:
    """Change the task in each shard, after the question, and print whether it changed; `verb` is "pause", "paused"."""
    store, (present, past) = command.open(options), verb
    paused = store.snapshot().paused_tasks
    task, *_ = names = registry.names_of(_find(options["task"], {*registry.names(), *paused}))
    would_change = len(paused.keys() & {*names}) > 0 if present == "resume" else not paused.keys() >= {*names}
    if options["dry_run"]:
        text = f"Would {present} task {task}." if would_change else f"No change for task {task}."
        command.print_result(options, text, dry_run=True, changed=0, tasks=[task] if would_change else [])
        return
    command.confirm(f"{present.capitalize()} task {task}?", options)
    limits = [store.operations(shard).limits for shard in store.shard_numbers()]
    # Jobs that were enqueued under an alias are jobs of the task.
    changed = sum([change(each, names) for each in limits]) > 0
    text = f"{past.capitalize()} task {task}." if changed else f"No change for task {task}."
    command.print_result(options, text, changed=int(changed), tasks=[task] if changed else [])


def _find(text: str, names: set[str]) -> str:
    """Return the name of this task, else of the only one whose name or alias ends so. Raises CommandError."""
    fitting = [text] if text in names else [name for name in names if name.endswith(f".{text}")]
    found = sorted({registry.names_of(name)[0] for name in fitting})
    if len(found) > 1:
        raise CommandError(f"Several tasks end with {text!r:.80}: {', '.join(found)}.", returncode=WRONG_OPTIONS)
    if not found:
        spelling = did_you_mean(text, names)
        raise CommandError(f"No task is registered or paused as {text!r:.200}{spelling}", returncode=NOT_FOUND)
    return found[0]
