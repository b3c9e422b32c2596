"""Logs: the package's logger. Its calls raise nothing, so that the loops that use it continue.

Handlers and filters are the project's own. One may write to a database that is down or to a closed stderr, or call
sys.exit().
"""

import logging
import threading
import traceback
from contextlib import suppress
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that prints the errors of its handlers and filters to standard error, if that is open."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a record. If a handler raises, the record is lost, as with handlers of the standard library."""
        try:
            # The record names the line of the caller, two frames up.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except BaseException as error:
            # In the main thread it may be Ctrl-C, which does not come from the handler.
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            if logging.raiseExceptions:
                with suppress(Exception):
                    traceback.print_exc()


logger = SafeLogger(logging.getLogger("django_delayq"))
