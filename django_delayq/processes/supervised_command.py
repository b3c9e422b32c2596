"""KeptCommand: a management command as a child process, started anew whenever it ends, until it is stopped.

For `run_worker --processes`, and `--with-dispatcher`: a process, not a thread, since beside eight computing threads its
timer came 143 ms late at the median, beside one 11 ms.
"""

import subprocess
import sys
import threading
from time import monotonic

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
