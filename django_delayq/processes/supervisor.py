"""Several: whole workers as children of one process, `run_worker --processes`; any pool."""

import signal
import subprocess
import sys
import threading
from time import monotonic
from typing import Any

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


#: Seconds between restarts: the first, and the longest.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


class SupervisedCommand:
    """Keep one command running until stopped; it takes --until-stdin-closes, and so ends when this process does."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, *_entry(), *command, "--until-stdin-closes"]
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"delayq-{command[0]}", daemon=True)
        self._thread.start()

    def terminate(self) -> None:
        """Ask the command to end, and start it no more; called again, it is asked again."""
        self._stopped.set()
        if self._process is not None:
            self._process.terminate()

    def is_running(self, *, wait: float = 0.0) -> bool:
        """Tell whether it still has to be waited for, after so many seconds at most."""
        self._thread.join(wait)
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the command and wait for it."""
        self.terminate()
        self._thread.join()

    def _run(self) -> None:
        wait = _FIRST_WAIT
        while not self._stopped.is_set():
            started = monotonic()
            # Our end of the pipe closes with this process, however it ends: no child is left behind.
            with subprocess.Popen(self._command, stdin=subprocess.PIPE) as process:
                self._process = process
                if self._stopped.is_set():
                    process.terminate()
                process.wait()
            if monotonic() - started > _LONGEST_WAIT:
                wait = _FIRST_WAIT
            self._stopped.wait(wait)
            wait = min(wait * 2, _LONGEST_WAIT)


def to_backend(alias: str | None) -> tuple[str, ...]:
    """Return the option that has a command serve the store of an alias."""
    return () if alias is None else (f"--backend={alias}",)


def _entry() -> list[str]:
    """Return how this process was started: manage.py, or `python -m django`."""
    package = getattr(sys.modules["__main__"], "__spec__", None)
    if package is not None:
        return ["-m", (package.name.removesuffix(".__main__"))]
    return [sys.argv[0]]
