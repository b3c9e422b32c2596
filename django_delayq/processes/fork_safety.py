"""Forked: a process that a task forked from one of ours is the task's; it must not go on as a second worker.

It ends by the signals that ours survive, and where the task's code ends.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

#: What a process does by itself at the signals that ours handle.
_DEFAULTS: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
_handlers: list[Callable[..., Any]] = []
_forking = threading.local()


def install_signal_handler(handler: Callable[..., Any]) -> None:
    """Handle SIGTERM and SIGINT in this process and not in those forked from it. For the main thread."""
    _handlers.append(handler)
    for number in _DEFAULTS:
        signal.signal(number, handler)


def exit_if_child_of(pid: int, error: BaseException | None = None) -> None:
    """End this process as an interpreter ends, unless it is the one with that id; `error` is what ended its code."""
    if os.getpid() != pid:
        _end(error)


def _end(error: BaseException | None) -> NoReturn:
    code: Any = 1
    # Whatever goes wrong with its last words: standard output may be closed, or None.
    try:
        if error is None or isinstance(error, SystemExit):
            code = (error and error.code) or 0
        else:
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 1)


def _hold_back() -> None:
    # A signal that came between the fork and the new handlers would be taken by the old ones, and be lost.
    if _handlers:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULTS)


def _deliver() -> None:
    if _handlers:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _let_go() -> None:
    if _handlers:
        # A byte written there would wake the worker that this was forked from.
        signal.set_wakeup_fd(-1)
        for number, default in _DEFAULTS.items():
            if signal.getsignal(number) in _handlers:
                signal.signal(number, default)
    _deliver()


os.register_at_fork(before=_hold_back, after_in_parent=_deliver, after_in_child=_let_go)
