"""Tasks that do what tasks should not. Each function here is one kind; processes know them by TASK_MODULES.

What would last for ever elsewhere ends after a few seconds here: a thread cannot be ended, and each holds a slot.
"""

import _thread
import asyncio
import atexit
import builtins
import contextlib
import contextvars
import ctypes
import decimal
import faulthandler
import gc
import inspect
import io
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.utils import timezone, translation

from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, delayed_task, enqueue_many
from django_delayq.exceptions import TaskTimeout
from tests.app.tasks import noop

#: Seconds that count as for ever.
LONG = 4.0
Kind = Callable[[], Any]

#: Name -> function: kinds for any pool; for a loop; that end or cripple the process they run in.
PLAIN: dict[str, Kind] = {}
ASYNC: dict[str, Kind] = {}
DEADLY: dict[str, Kind] = {}


def kind(kinds: dict[str, Kind]) -> Callable[[Kind], Kind]:
    """Enter a function as a kind."""

    def enter(func: Kind) -> Kind:
        kinds[func.__name__] = func
        return func

    return enter


TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)


@delayed_task(retry=TWICE, timeout=1, hard_timeout=2)
def misbehave(name: str) -> Any:
    """Be of this kind."""
    return {**PLAIN, **DEADLY}[name]()


@delayed_task(retry=TWICE, timeout=1, hard_timeout=2)
async def misbehave_async(name: str) -> Any:
    """Be of this kind, in a loop."""
    return await ASYNC[name]()


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.1))
def innocent() -> None:
    """Take a moment."""
    time.sleep(0.01)


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.1))
async def innocent_async() -> None:
    """Take a few turns of a loop, and use a thread of it."""
    for _ in range(3):
        await asyncio.sleep(0.005)
    await asyncio.to_thread(time.sleep, 0.001)


# Exceptions


class _Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__name__"):
            raise SystemExit(3)
        return super().__getattribute__(name)


class HostileClass(Exception, metaclass=_Meta):
    """Ends whoever asks for its name."""


class HostileText(Exception):
    """Ends whoever asks for its text."""

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class HostileBase(BaseException):
    """Not an Exception, and raises when it is printed."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class HostileIdentity(Exception):
    """Raises when it is asked for its class."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit(5)


class HostileNotes(Exception):
    """Has notes that cannot be read."""

    __notes__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


class NamelessModule(Exception):
    """Has no text for a module."""

    __module__ = 5  # type: ignore[assignment]


def _looped() -> Exception:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def _nested() -> Exception:
    error: Exception = ValueError("deep")
    for _ in range(500):
        error = ExceptionGroup("level", [error])
    return error


#: Name -> what is raised. Made when it is asked for: an exception keeps its traceback.
RAISED: dict[str, Callable[[], BaseException]] = {
    "system_exit": lambda: SystemExit(7),
    "system_exit_text": lambda: SystemExit("bye"),
    "keyboard_interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "base_exception": lambda: BaseException("base"),
    "base_group": lambda: BaseExceptionGroup("group", [SystemExit(1), KeyboardInterrupt()]),
    "cancelled": asyncio.CancelledError,
    "stop_iteration": StopIteration,
    "stop_async_iteration": StopAsyncIteration,
    "memory_error": MemoryError,
    "recursion_error": RecursionError,
    "own_timeout": lambda: TaskTimeout("mine"),
    "plain_timeout": TimeoutError,
    "broken_pipe": BrokenPipeError,
    "bad_descriptor": lambda: OSError(9, "Bad file descriptor"),
    "lone_surrogate": lambda: ValueError("\ud800"),
    "null_bytes": lambda: ValueError("\0" * 100),
    "huge_text": lambda: ValueError("x" * 10_000_000),
    "bytes_text": lambda: SyntaxError("text", ("f.py", 1, 2, b"bytes")),  # type: ignore[arg-type]
    "hostile_class": HostileClass,
    "hostile_text": HostileText,
    "hostile_base": HostileBase,
    "hostile_identity": HostileIdentity,
    "hostile_notes": HostileNotes,
    "nameless_module": NamelessModule,
    "looped_causes": _looped,
    "nested_groups": _nested,
    "retry_far": lambda: RetryLater(10**30),
    "retry_never": lambda: RetryLater(float("nan")),
    "retry_before": lambda: RetryLater(-5),
    "dead_hostile": lambda: DeadLetterNow(HostileText()),
}


def _raise(make: Callable[[], BaseException]) -> Kind:
    def func() -> None:
        raise make()

    return func


def _raise_async(make: Callable[[], BaseException]) -> Kind:
    async def func() -> None:
        await asyncio.sleep(0)
        raise make()

    return func


PLAIN.update({f"raise_{name}": _raise(make) for name, make in RAISED.items()})
ASYNC.update({f"raise_{name}": _raise_async(make) for name, make in RAISED.items()})


# What it returns, and leaves


class _Raising:
    def __del__(self) -> None:
        raise SystemExit(6)

    def __repr__(self) -> str:
        raise SystemExit(7)


PLAIN.update(
    {
        "return_object": object,
        "return_raising": _Raising,
        "return_generator": lambda: (number for number in range(3)),
        "return_future": Future,
        "return_lock": threading.Lock,
        "return_class": lambda: HostileClass,
        "return_huge": lambda: "x" * 5_000_000,
        "return_coroutine": lambda: asyncio.sleep(0),
    }
)


@kind(PLAIN)
def left_generator() -> None:
    """Leave a generator that refuses to be closed."""

    def stubborn() -> Any:
        while True:
            with contextlib.suppress(GeneratorExit):
                yield

    next(stubborn())


@kind(PLAIN)
def left_cycle() -> None:
    """Leave a cycle whose finalizers raise."""
    one = _Raising()
    one.self = one  # type: ignore[attr-defined]
    weakref.finalize(one, _raise(SystemExit))
    del one
    gc.collect()


@kind(PLAIN)
def left_threads() -> None:
    """Leave threads behind that end badly."""
    for target in (_raise(SystemExit), _raise(HostileText), _thread.exit):
        threading.Thread(target=target, daemon=True).start()


@kind(PLAIN)
def left_timer() -> None:
    """Leave a timer behind that raises in this thread when the task is over, as libraries with time limits do."""
    strike = ctypes.pythonapi.PyThreadState_SetAsyncExc
    here = ctypes.c_ulong(threading.get_ident())
    threading.Timer(0.05, strike, (here, ctypes.py_object(SystemExit))).start()


@kind(PLAIN)
def strike_itself_last() -> None:
    """Raise in this thread, as late as a task can."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.get_ident()), ctypes.py_object(KeyboardInterrupt)
    )


@kind(PLAIN)
def strike_pool_threads() -> None:
    """Raise in each other thread that runs tasks."""
    for thread in threading.enumerate():
        if thread.name.startswith("delayq-") and thread.name[7:].isdigit() and thread.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


@kind(PLAIN)
def left_exit_function() -> None:
    """Leave a function that ends the interpreter badly."""
    atexit.register(_raise(SystemExit))


@kind(PLAIN)
def left_executor() -> None:
    """Leave an executor that was not shut down."""
    ThreadPoolExecutor(2).submit(time.sleep, 0.1)


@kind(PLAIN)
def left_transaction() -> None:
    """Leave a transaction open."""
    transaction.atomic().__enter__()


@kind(PLAIN)
def closed_connections() -> None:
    """Close and forget all connections to databases."""
    connections.close_all()
    with contextlib.suppress(AttributeError):
        del connections["default"]


# Time limits


@kind(PLAIN)
def sleep_on() -> None:
    """Sleep past both limits, where no exception arrives."""
    time.sleep(LONG)


@kind(PLAIN)
def swallow_limits() -> None:
    """Compute past both limits, and catch what should end it."""
    over = time.monotonic() + LONG
    while time.monotonic() < over:
        with contextlib.suppress(BaseException):
            while time.monotonic() < over:
                pass


@kind(PLAIN)
def late_limit() -> None:
    """End just when its limit expires."""
    time.sleep(0.9995)


@kind(PLAIN)
def recurse() -> None:
    """Call itself without end."""
    recurse()


@kind(PLAIN)
def recurse_in_cleanup() -> None:
    """Recurse again when the stack is full."""
    try:
        recurse()
    finally:
        with contextlib.suppress(RecursionError):
            recurse()


# The process that all share


@kind(PLAIN)
def change_directory() -> None:
    """Go elsewhere, and remove the mode of new files."""
    os.chdir("/")
    os.umask(0o777)
    os.umask(0o022)


@kind(PLAIN)
def change_environment() -> None:
    """Empty the environment of what was not given by the test."""
    for name in ("PATH", "HOME", "LANG", "DJANGO_SETTINGS_MODULE_OLD", "TZ"):
        os.environ.pop(name, None)
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()


@kind(PLAIN)
def change_locale() -> None:
    """Take another locale, language, time zone and precision."""
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
    """Let each thread keep the interpreter for longer."""
    sys.setswitchinterval(0.05)


@kind(PLAIN)
def raise_recursion_limit() -> None:
    """Allow deeper recursion."""
    sys.setrecursionlimit(5_000)


@kind(PLAIN)
def collect_garbage() -> None:
    """Play with the garbage collector."""
    gc.disable()
    gc.set_threshold(1, 1, 1)
    gc.freeze(), gc.unfreeze()
    gc.collect()
    gc.callbacks.append(_raise_from_collector)


def _raise_from_collector(*_: Any) -> None:
    raise SystemExit(8)


@kind(PLAIN)
def seed_random() -> None:
    """Make all randomness the same."""
    random.seed(0)


@kind(PLAIN)
def handle_signals() -> None:
    """Replace handlers, which Python refuses outside the main thread."""
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
    """Patch clocks as tests of projects do, and forget to take it back."""
    # Not time.monotonic(): no loop of asyncio, a task's own neither, would sleep to an end.
    time.perf_counter = time.time = lambda: 0.0


@kind(PLAIN)
def patch_threading() -> None:
    """Patch what others import later."""
    threading.current_thread().name = "x" * 10_000
    threading.excepthook = lambda *_: sys.exit()
    sys.unraisablehook = lambda *_: sys.exit()
    sys.excepthook = lambda *_: sys.exit()


@kind(PLAIN)
def patch_os() -> None:
    """Patch functions that few need."""
    os.getcwd = _raise(OSError)  # type: ignore[assignment]
    builtins.input = _raise(SystemExit)


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
    """Change settings of Django's."""
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
    """Log what cannot be formatted, and shut logging down."""
    log = logging.getLogger("django_delayq")
    log.warning("%s %s", 1)
    log.warning("%d", "x")
    log.warning(_Raising)
    logging.shutdown()


@kind(PLAIN)
def replace_streams() -> None:
    """Replace standard output by one that is closed."""
    sys.stdout = io.StringIO()
    sys.stdout.close()


@kind(PLAIN)
def redirect_streams() -> None:
    """Redirect output in one thread, and so in all."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        time.sleep(0.05)


# Processes


@kind(PLAIN)
def fork_and_leave() -> None:
    """Fork, and let the child end as a task ends."""
    os.fork()


@kind(PLAIN)
def fork_and_raise() -> None:
    """Fork, and let both raise."""
    os.fork()
    raise ValueError("both")


@kind(PLAIN)
def become_daemon() -> None:
    """Fork twice as daemons do, closing all in the last one."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 4_096)
    time.sleep(0.5)
    os._exit(0)


@kind(PLAIN)
def start_programs() -> None:
    """Start programs and wait for none."""
    with warnings.catch_warnings():
        subprocess.Popen(["true"])
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.2,), daemon=False).start()


@kind(PLAIN)
def wait_for_any_child() -> None:
    """Take the exit code of whatever child has ended, also of one that is not its own."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@kind(PLAIN)
def enqueue_much() -> None:
    """Enqueue from within, also what cannot be."""
    enqueue_many([noop.job(number) for number in range(50)])
    with transaction.atomic():
        noop.enqueue()
        raise ValueError("rolled back")


@kind(PLAIN)
def run_own_loop() -> None:
    """Run loops of its own, and leave one set."""
    asyncio.run(asyncio.sleep(0))
    asyncio.set_event_loop(asyncio.new_event_loop())


@kind(PLAIN)
def look_around() -> None:
    """Touch the frames of all other threads."""
    for frame in sys._current_frames().values():
        inspect.getframeinfo(frame)


# The loop that all share


@kind(ASYNC)
async def cancel_itself() -> None:
    """Be cancelled at its next wait."""
    asyncio.current_task().cancel()  # type: ignore[union-attr]
    await asyncio.sleep(LONG)


@kind(ASYNC)
async def cancel_itself_last() -> None:
    """Be cancelled by its last act."""
    asyncio.current_task().cancel()  # type: ignore[union-attr]


@kind(ASYNC)
async def cancel_others() -> None:
    """Cancel all other tasks of the loop."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel("by a neighbour")


@kind(ASYNC)
async def cancel_all() -> None:
    """Cancel all tasks of the loop."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(LONG)


@kind(ASYNC)
async def uncancel() -> None:
    """Take back what was never asked."""
    asyncio.current_task().uncancel()  # type: ignore[union-attr]


@kind(ASYNC)
async def stop_loop() -> None:
    """Stop the loop, several times."""
    for _ in range(3):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)


@kind(ASYNC)
async def close_loop() -> None:
    """Close the loop, which it refuses while it runs."""
    asyncio.get_running_loop().close()


@kind(ASYNC)
async def shut_down_executor() -> None:
    """Shut the loop's executor down."""
    await asyncio.get_running_loop().shutdown_default_executor()


@kind(ASYNC)
async def shut_down_generators() -> None:
    """Close all asynchronous generators of the loop."""
    await asyncio.get_running_loop().shutdown_asyncgens()


@kind(ASYNC)
async def set_task_factory() -> None:
    """Set a task factory that raises."""
    asyncio.get_running_loop().set_task_factory(lambda *_, **__: 1 / 0)  # type: ignore[arg-type,return-value]


@kind(ASYNC)
async def set_exception_handler() -> None:
    """Set a handler of exceptions that raises, and let it be called."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_raise(ValueError))
    loop.call_soon(_raise(ValueError))
    await asyncio.sleep(0)


@kind(ASYNC)
async def raise_in_callbacks() -> None:
    """Raise in callbacks of the loop."""
    for make in (SystemExit, KeyboardInterrupt, HostileText):
        asyncio.get_running_loop().call_soon(_raise(make))
    await asyncio.sleep(0.01)


@kind(ASYNC)
async def exit_beside() -> None:
    """Raise SystemExit in a task of its own."""
    task = asyncio.ensure_future(_raise_async(SystemExit)())
    await asyncio.sleep(0.05)
    del task


@kind(ASYNC)
async def leave_tasks() -> None:
    """Leave tasks behind."""
    for _ in range(20):
        asyncio.ensure_future(asyncio.sleep(0.1)).add_done_callback(_raise(SystemError))


@kind(ASYNC)
async def debug_loop() -> None:
    """Debug the loop for a while."""
    asyncio.get_running_loop().set_debug(True)
    await asyncio.sleep(0.05)
    asyncio.get_running_loop().set_debug(False)


@kind(ASYNC)
async def block_loop() -> None:
    """Hold up the loop."""
    time.sleep(0.5)


@kind(ASYNC)
async def block_past_limits() -> None:
    """Hold up the loop past its own hard limit."""
    time.sleep(2.5)


@kind(ASYNC)
async def wait_for_ever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


@kind(ASYNC)
async def swallow_timeout() -> None:
    """Refuse to be cancelled."""
    over = time.monotonic() + LONG
    while time.monotonic() < over:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)


@kind(ASYNC)
async def wait_for_itself() -> None:
    """Wait for its own task."""
    await asyncio.current_task()  # type: ignore[misc]


@kind(ASYNC)
async def close_own_coroutine() -> None:
    """Close the coroutine that runs."""
    asyncio.current_task().get_coro().close()  # type: ignore[union-attr]


@kind(ASYNC)
async def strike_loop_last() -> None:
    """Raise in the loop's thread when this task is over."""
    strike_itself_last()


@kind(ASYNC)
async def return_coroutine() -> Any:
    """Return a coroutine that nobody awaits."""
    return asyncio.sleep(0)


@kind(ASYNC)
async def run_in_loop() -> None:
    """Run a loop within the loop."""
    asyncio.run(asyncio.sleep(0))


# What ends or cripples a process


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
    """Recurse without end where no limit holds."""
    sys.setrecursionlimit(2**30)
    eval("(lambda f: f(f))(lambda f: [f(f) for _ in (1,)])")


@kind(DEADLY)
def exit_from_thread() -> None:
    """End the process by a thread."""
    threading.Thread(target=os._exit, args=(5,)).start()
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
    """Close the standard streams, the descriptors too."""
    sys.stdout.close()
    sys.stderr.close()
    os.closerange(0, 3)


@kind(DEADLY)
def close_error_stream() -> None:
    """Close standard error."""
    sys.stderr.close()


@kind(DEADLY)
def forbid_descriptors() -> None:
    """Allow no further file."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@kind(DEADLY)
def forbid_recursion() -> None:
    """Allow hardly any recursion."""
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
