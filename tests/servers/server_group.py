"""Server group: several servers of this machine that run in a `with` block."""

from contextlib import ExitStack
from typing import Self


class ServerGroup:
    """The base of a cluster and of a primary with Sentinels. The servers run in the `with` block."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all servers."""
        self._stack.close()

    def _start_all(self) -> None:
        """Start the servers and return when they know each other."""
        raise NotImplementedError
