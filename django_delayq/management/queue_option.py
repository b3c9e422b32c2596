"""Queue option: `--queues`, the list of queues that a worker serves."""

from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.conf.config import TaskConfig, WorkerConfig
from django_delayq.conf.queue_filter import QueueFilter, QueueItem
from django_delayq.conf.spelling import did_you_mean


def add_queues(parser: CommandParser) -> None:
    """Add --queues."""
    parser.add_argument(
        "--queues",
        help="Queue names, comma-separated: only these, strictly in this order. With a pattern (mail*) or an exclusion "
        "(-slow, -test*) in the list: all queues that match, best rank first; only exclusions: all queues but those. "
        "Write --queues=-slow if the list begins with -. In a name, %%2A is *, %%2C is a comma, %%25 is %%, and %%2D "
        "is a - at its beginning. Default: all, best rank first.",
    )
    refuse = parser.error

    def error(message: str) -> Any:
        # argparse takes `-slow` for an option, and only its error shows that the value is missing.
        hint = "; write --queues=-slow, with =, if the list begins with -"
        return refuse(message + hint if "--queues:" in message else message)

    parser.error = error  # type: ignore[method-assign]


def with_queues(worker: WorkerConfig, options: dict[str, Any], *, tasks: TaskConfig) -> WorkerConfig:
    """Return the settings of a worker with the queues of the option. Raises CommandError."""
    if options["queues"] is None:
        return worker
    try:
        return _with_queues(worker, [text.strip() for text in options["queues"].split(",")], tasks)
    except ValueError as error:
        raise CommandError(f"--queues: {error}") from error


def _with_queues(worker: WorkerConfig, texts: list[str], tasks: TaskConfig) -> WorkerConfig:
    queue_filter = QueueFilter.read(texts)
    for item in queue_filter.items:
        _check(item, tasks)
    if not queue_filter.is_needed:
        return replace(worker, queues=tuple(dict.fromkeys(item.parts[0] for item in queue_filter.items)))
    if tasks.queues and not any(map(queue_filter.matches, tasks.queues)):
        excluded = ", ".join(item.text for item in queue_filter.excluded)
        raise ValueError(f"{excluded} leaves no queue of DELAYQ['QUEUES'] to serve; leave it out, or declare a queue")
    return replace(worker, queue_filter=queue_filter)


def _check(item: QueueItem, tasks: TaskConfig) -> None:
    if item.is_name:
        tasks.check_queue(item.parts[0])
    elif tasks.queues and not any(map(item.matches, tasks.queues)):
        pattern = item.text.removeprefix("-")
        raise ValueError(
            f"pattern {pattern!r:.80} matches no queue of DELAYQ['QUEUES']{did_you_mean(pattern, tasks.queues)}; "
            f"correct it, or declare a queue that it matches"
        )
