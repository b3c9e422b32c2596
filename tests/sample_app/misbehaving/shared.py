"""Shared state: tasks that change the process that all jobs share, its logs and its children."""

import builtins
import contextlib
import contextvars
import decimal
import faulthandler
import gc
import io
import locale
import logging
import os
import random
import resource
import signal
import sys
import threading
import time
import tracemalloc
import warnings
from typing import Any

from django.conf import settings
from django.utils import timezone, translation

from tests.sample_app.misbehaving.kinds import PLAIN, kind, raising
from tests.sample_app.misbehaving.leftovers import Raising

# The process that all share


@kind(PLAIN)
def change_directory() -> None:
    """Change the working directory and the file mode mask."""
    os.chdir("/")
    os.umask(0o777)
    os.umask(0o022)


@kind(PLAIN)
def change_environment() -> None:
    """Delete the environment variables that the test did not set."""
    for name in ("PATH", "HOME", "LANG", "DJANGO_SETTINGS_MODULE_OLD", "TZ"):
        os.environ.pop(name, None)
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()


@kind(PLAIN)
def change_locale() -> None:
    """Change locale, language, time zone and decimal precision."""
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "C")
    translation.activate("ar")
    timezone.activate("Asia/Kathmandu")
    decimal.getcontext().prec = 1


@kind(PLAIN)
def change_context() -> None:
    """Set many context variables."""
    for number in range(1_000):
        contextvars.ContextVar(f"v{number}").set(number)


@kind(PLAIN)
def change_switching() -> None:
    """Make the interpreter switch threads less often."""
    sys.setswitchinterval(0.05)


@kind(PLAIN)
def raise_recursion_limit() -> None:
    """Allow deeper recursion."""
    sys.setrecursionlimit(5_000)


@kind(PLAIN)
def collect_garbage() -> None:
    """Change the settings and callbacks of the garbage collector."""
    gc.disable()
    gc.set_threshold(1, 1, 1)
    gc.freeze(), gc.unfreeze()
    gc.collect()
    gc.callbacks.append(_raise_from_collector)


def _raise_from_collector(*_: Any) -> None:
    raise SystemExit(8)


@kind(PLAIN)
def seed_random() -> None:
    """Seed the random generators."""
    random.seed(0)


@kind(PLAIN)
def handle_signals() -> None:
    """Replace signal handlers, which Python refuses outside the main thread."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@kind(PLAIN)
def block_signals() -> None:
    """Block signals in this thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})


@kind(PLAIN)
def lower_limits() -> None:
    """Forbid core files and lower the priority."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(1)


@kind(PLAIN)
def patch_time() -> None:
    """Patch clocks as tests of projects do, and do not undo it."""
    # Not time.monotonic(): no loop of asyncio, not even a task's own, would wake from a sleep.
    time.perf_counter = time.time = lambda: 0.0


@kind(PLAIN)
def patch_threading() -> None:
    """Patch names that other code imports later."""
    threading.current_thread().name = "x" * 10_000
    threading.excepthook = lambda *_: sys.exit()
    sys.unraisablehook = lambda *_: sys.exit()
    sys.excepthook = lambda *_: sys.exit()


@kind(PLAIN)
def patch_os() -> None:
    """Patch rarely used functions."""
    # Not os.getcwd(): no process could start any more, and its job would wait for another worker.
    os.getlogin = raising(OSError)  # type: ignore[assignment]
    builtins.input = raising(SystemExit)


@kind(PLAIN)
def trace_itself() -> None:
    """Leave a trace function in this thread."""
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


@kind(PLAIN)
def fail_trace() -> None:
    """Leave a trace function in this thread that raises."""

    def trace(*_: Any) -> Any:
        raise SystemExit(9)

    sys.settrace(trace)


@kind(PLAIN)
def trace_memory() -> None:
    """Trace memory for a moment."""
    tracemalloc.start()
    tracemalloc.stop()
    faulthandler.disable()


@kind(PLAIN)
def turn_warnings_to_errors() -> None:
    """Make each warning an error."""
    warnings.simplefilter("error")


@kind(PLAIN)
def change_settings() -> None:
    """Change settings of Django."""
    settings.DEBUG = True
    settings.DEBUG = False


# Output and logs


@kind(PLAIN)
def print_much() -> None:
    """Write several megabytes."""
    print("y" * 3_000_000)
    sys.stderr.write("\ud800\0" * 1_000)


@kind(PLAIN)
def misuse_logs() -> None:
    """Log records that cannot be formatted, and shut logging down."""
    log = logging.getLogger("django_delayq")
    log.warning("%s %s", 1)
    log.warning("%d", "x")
    log.warning(Raising)
    logging.shutdown()


@kind(PLAIN)
def replace_streams() -> None:
    """Replace standard output by a closed stream."""
    sys.stdout = io.StringIO()
    sys.stdout.close()


@kind(PLAIN)
def redirect_streams() -> None:
    """Redirect output in one thread, and so in all."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        # Others write and log meanwhile.
        time.sleep(0.05)
