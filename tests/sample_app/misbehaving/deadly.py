"""Deadly: tasks that end or cripple the process they run in."""

import _thread
import ctypes
import inspect
import os
import resource
import signal
import sys
import threading
import time

from tests.sample_app.misbehaving.kinds import DEADLY, LONG, kind


@kind(DEADLY)
def exit_at_once() -> None:
    """End the process."""
    os._exit(3)


@kind(DEADLY)
def kill_itself() -> None:
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@kind(DEADLY)
def abort() -> None:
    """End the process by SIGABRT."""
    os.abort()


@kind(DEADLY)
def read_null() -> None:
    """Read from address 0."""
    ctypes.string_at(0)


@kind(DEADLY)
def overflow_stack() -> None:
    """Recurse without end in code without a recursion limit."""
    sys.setrecursionlimit(2**30)
    eval("(lambda f: f(f))(lambda f: [f(f) for _ in (1,)])")


@kind(DEADLY)
def exit_from_thread() -> None:
    """End the process from a thread."""
    threading.Thread(target=os._exit, args=(5,)).start()
    # The process ends in the middle of this.
    time.sleep(LONG)


@kind(DEADLY)
def interrupt_main() -> None:
    """Send SIGINT to the main thread."""
    _thread.interrupt_main()


@kind(DEADLY)
def close_all_descriptors() -> None:
    """Close all but the standard streams."""
    os.closerange(3, 4_096)


@kind(DEADLY)
def close_streams() -> None:
    """Close the standard streams and their descriptors."""
    sys.stdout.close()
    sys.stderr.close()
    os.closerange(0, 3)


@kind(DEADLY)
def close_error_stream() -> None:
    """Close standard error."""
    sys.stderr.close()


@kind(DEADLY)
def forbid_descriptors() -> None:
    """Forbid further open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@kind(DEADLY)
def forbid_recursion() -> None:
    """Set a very low recursion limit."""
    sys.setrecursionlimit(len(inspect.stack()) + 5)


@kind(DEADLY)
def replace_program() -> None:
    """Become another program."""
    os.execv("/bin/true", ["true"])


@kind(DEADLY)
def forget_modules() -> None:
    """Forget all modules of the package."""
    for name in [name for name in sys.modules if name.startswith("django_delayq")]:
        del sys.modules[name]
