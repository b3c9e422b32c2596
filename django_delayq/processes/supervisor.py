"""Several: whole workers as children of one process, `run_worker --processes`; any pool."""

import signal
from typing import Any

from django_delayq.processes.supervised_command import SupervisedCommand, to_backend

#: Options that the children get as they were given.
_HANDED_ON = (
    "backend",
    "queues",
    "concurrency",
    "pool",
    "forward_to",
    "max_jobs",
    "max_memory",
    "verbosity",
    "settings",
    "pythonpath",
)


def run_workers(options: dict[str, Any]) -> None:
    """Keep so many workers running until SIGTERM or SIGINT, which they get too; each that ends is started anew."""
    given = [f"--{name.replace('_', '-')}={options[name]}" for name in _HANDED_ON if options.get(name) is not None]
    commands = [("run_worker", *given)] * options["processes"]
    if options["with_dispatcher"]:
        commands.append(("run_dispatcher", *to_backend(options["backend"])))
    children = [SupervisedCommand(*command) for command in commands]

    def stop(*_: Any) -> None:
        for child in children:
            child.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    # In turns: a signal that comes between two bytecodes is handled when the next turn begins.
    while any(child.is_running(wait=0.2) for child in children):
        pass
    for number, handler in before.items():
        signal.signal(number, handler)
