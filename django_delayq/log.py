"""Log: the package's logger, whose calls raise nothing: loops that must go on write to it.

Handlers and filters are the project's own: one may write to a database or a Redis that is away, or to a closed stderr,
and one may call sys.exit().
"""

import logging
import threading
import traceback
from contextlib import suppress
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that prints what its handlers and filters raise to standard error, if that is there."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a record; one that a handler refused is lost, as with handlers of the standard library."""
        try:
            # The record's place in the source is that of the caller, two frames up.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except BaseException as error:
            # What ends a program may be meant for it in its main thread: Ctrl-C does not come from the handler.
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            if logging.raiseExceptions:
                with suppress(Exception):
                    traceback.print_exc()


logger = SafeLogger(logging.getLogger("django_delayq"))
