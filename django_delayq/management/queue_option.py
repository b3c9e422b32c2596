"""Queue options: `--queues` and `--weights`, the queues that a worker serves."""

import re
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.conf.config import TaskConfig, WorkerConfig
from django_delayq.conf.queue_filter import QueueFilter, QueueItem
from django_delayq.conf.spelling import did_you_mean

_WEIGHT, _MAX_WEIGHT = re.compile("[0-9]{1,4}"), 100


def add_queues(parser: CommandParser) -> None:
    """Add --queues and --weights."""
    parser.add_argument(
        "--queues",
        help="Queue names, comma-separated: only these, strictly in this order. With a pattern (mail*) or an exclusion "
        "(-slow, -test*) in the list: all queues that match, best rank first; only exclusions: all queues but those. "
        "Write --queues=-slow if the list begins with -. In a name, %%2A is *, %%2C is a comma, %%25 is %%, and %%2D "
        "is a - at its beginning. Default: all, best rank first.",
    )
    parser.add_argument(
        "--weights",
        help="Queue names with weights, such as mail=6,bulk=1: only these. While several have jobs, each gets a share "
        "of the claims, in proportion to its weight, a whole number, 1 to 100. Names are written as for --queues, and "
        "%%3D is =. Instead of --queues.",
    )
    refuse = parser.error

    def error(message: str) -> Any:
        # argparse takes `-slow` for an option, and only its error shows that the value is missing.
        hints = {
            "--queues:": "; write --queues=-slow, with =, if the list begins with -",
            "--weights:": "; write --weights mail=6,bulk=1, and %2D for a - at the beginning of a name",
        }
        return refuse(message + next((hint for option, hint in hints.items() if option in message), ""))

    parser.error = error  # type: ignore[method-assign]


def with_queues(worker: WorkerConfig, options: dict[str, Any], *, tasks: TaskConfig) -> WorkerConfig:
    """Return the settings of a worker with the queues of the options. Raises CommandError."""
    if options["queues"] is not None and options["weights"] is not None:
        raise CommandError("--weights: it names the queues itself, so leave out --queues")
    for option, read in (("queues", _with_queues), ("weights", _with_weights)):
        if options[option] is not None:
            try:
                worker = read(worker, [text.strip() for text in options[option].split(",")], tasks)
            except ValueError as error:
                raise CommandError(f"--{option}: {error}") from error
    return worker


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


def _with_weights(worker: WorkerConfig, texts: list[str], tasks: TaskConfig) -> WorkerConfig:
    weights: dict[str, int] = {}
    for text in texts:
        name, equals, weight = map(str.strip, text.partition("="))
        if not equals:
            raise ValueError(f"{text!r:.80} has no weight; write NAME=WEIGHT, for example mail=6,bulk=1")
        if name.startswith("-") or "*" in name:
            raise ValueError(
                f"{name!r:.80} is a pattern or an exclusion; name each queue, or write %2A for a * and %2D for a - "
                f"at the beginning of a name"
            )
        # int() reads more, such as 1_0 and digits of other scripts.
        number = int(weight) if _WEIGHT.fullmatch(weight) else 0
        if not 1 <= number <= _MAX_WEIGHT:
            hint = "; put a comma between two queues, and write %3D for = in a name" if "=" in weight else ""
            raise ValueError(f"{text!r:.80} must have a whole number, 1 to {_MAX_WEIGHT}, behind the ={hint}")
        queue = tasks.check_queue(QueueItem.read(name).parts[0])
        if queue in weights:
            raise ValueError(f"{name!r:.80} is the same queue as an item before it; give each queue one weight")
        weights[queue] = number
    return replace(worker, queues=tuple(weights), weights=tuple(weights.values()))


def _check(item: QueueItem, tasks: TaskConfig) -> None:
    if item.is_name:
        tasks.check_queue(item.parts[0])
    elif tasks.queues and not any(map(item.matches, tasks.queues)):
        pattern = item.text.removeprefix("-")
        raise ValueError(
            f"pattern {pattern!r:.80} matches no queue of DELAYQ['QUEUES']{did_you_mean(pattern, tasks.queues)}; "
            f"correct it, or declare a queue that it matches"
        )
