"""DispatcherChild: a dispatcher as the child process of a worker, for sites that want one command.

A process, not a thread: beside eight computing threads its timer came 143 ms late at the median, beside one 11 ms.
"""

import subprocess
import sys
import threading
from time import monotonic

#: Seconds between restarts: the first, and the longest.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


class DispatcherChild:
    """Keep one dispatcher running until stopped; it also ends when this process does."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="delayq-dispatcher-child", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the dispatcher and wait for it."""
        self._stopped.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join()

    def _run(self) -> None:
        wait = _FIRST_WAIT
        while not self._stopped.is_set():
            started = monotonic()
            command = [sys.executable, *_entry(), "run_dispatcher", "--until-stdin-closes"]
            # Our end of the pipe closes with this process, however it ends: no dispatcher is left behind.
            with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                self._process = process
                if self._stopped.is_set():
                    process.terminate()
                process.wait()
            wait = _FIRST_WAIT if monotonic() - started > _LONGEST_WAIT else min(wait * 2, _LONGEST_WAIT)
            self._stopped.wait(wait)


def _entry() -> list[str]:
    """Return how this process was started: manage.py, or `python -m django`."""
    package = getattr(sys.modules["__main__"], "__spec__", None)
    if package is not None:
        return ["-m", (package.name.removesuffix(".__main__"))]
    return [sys.argv[0]]
