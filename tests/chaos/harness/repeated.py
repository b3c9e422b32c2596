"""Repeated: a step that a thread takes again and again while a test does something else."""

import threading
from typing import Self


class Repeated:
    """Takes a step every few milliseconds inside a `with` block."""

    def __init__(self, *, every: float) -> None:
        """`every`: seconds between two steps."""
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take no more steps."""
        self._over.set()
        self._thread.join()

    def step(self) -> None:
        """Do it once."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self.step()
