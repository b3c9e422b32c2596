"""Fork safety: a process that a task forks belongs to the task and must not go on as a second worker.

It ends at the signals that our own processes handle, and at the end of the task's code.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

#: The signals that our processes handle, with Python's own handlers.
_DEFAULTS: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
_handlers: list[Callable[..., Any]] = []
_forking = threading.local()


def install_signal_handler(handler: Callable[..., Any]) -> None:
    """Handle SIGTERM and SIGINT in this process, and not in those forked from it. Call it in the main thread."""
    _handlers.append(handler)
    for number in _DEFAULTS:
        signal.signal(number, handler)


def exit_if_child_of(pid: int, error: BaseException | None = None) -> None:
    """Exit as the interpreter does if this process was forked from `pid`; `error` is what ended the task's code."""
    if os.getpid() != pid:
        _exit(error)


def _exit(error: BaseException | None) -> NoReturn:
    code: Any = 1
    # The process exits even if this output fails: standard output may be closed, or None.
    try:
        if error is None or isinstance(error, SystemExit):
            code = (error and error.code) or 0
        else:
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 1)


def _block_signals() -> None:
    # Between the fork and the reset of handlers, a signal would go to the old handlers and be lost.
    if _handlers:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULTS)


def _unblock_signals() -> None:
    if _handlers:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _reset_handlers() -> None:
    if _handlers:
        # A byte written to this descriptor would wake the parent, a worker.
        signal.set_wakeup_fd(-1)
        for number, default in _DEFAULTS.items():
            if signal.getsignal(number) in _handlers:
                signal.signal(number, default)
    _unblock_signals()


os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_reset_handlers)
