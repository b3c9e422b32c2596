"""Loops: coroutines that damage the loop that all jobs share."""

import asyncio
import contextlib
import time
from typing import Any

from tests.sample_app.misbehaving.errors import HostileText
from tests.sample_app.misbehaving.kinds import ASYNC, LONG, kind, raising, raising_async
from tests.sample_app.misbehaving.leftovers import strike_itself_last

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
    """Uncancel its task, which was never cancelled."""
    asyncio.current_task().uncancel()  # type: ignore[union-attr]


@kind(ASYNC)
async def stop_loop() -> None:
    """Stop the loop, several times."""
    for _ in range(3):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)


@kind(ASYNC)
async def close_loop() -> None:
    """Close the loop, although a running loop refuses to be closed."""
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
    loop.set_exception_handler(raising(ValueError))
    loop.call_soon(raising(ValueError))
    await asyncio.sleep(0)


@kind(ASYNC)
async def raise_in_callbacks() -> None:
    """Raise in callbacks of the loop."""
    for make in (SystemExit, KeyboardInterrupt, HostileText):
        asyncio.get_running_loop().call_soon(raising(make))
    await asyncio.sleep(0.01)


@kind(ASYNC)
async def exit_beside() -> None:
    """Raise SystemExit in a task of its own."""
    task = asyncio.ensure_future(raising_async(SystemExit)())
    await asyncio.sleep(0.05)
    del task


@kind(ASYNC)
async def leave_tasks() -> None:
    """Leave asyncio tasks."""
    for _ in range(20):
        asyncio.ensure_future(asyncio.sleep(0.1)).add_done_callback(raising(SystemError))


@kind(ASYNC)
async def debug_loop() -> None:
    """Set the loop's debug mode for a while."""
    asyncio.get_running_loop().set_debug(True)
    await asyncio.sleep(0.05)
    asyncio.get_running_loop().set_debug(False)


@kind(ASYNC)
async def block_loop() -> None:
    """Block the loop."""
    # The misbehaviour itself: no other coroutine runs meanwhile.
    time.sleep(0.5)


@kind(ASYNC)
async def block_past_limits() -> None:
    """Block the loop past its own hard limit."""
    # Longer than the hard limit of 2 s.
    time.sleep(2.5)


@kind(ASYNC)
async def wait_for_ever() -> None:
    """Wait for an event that never comes."""
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
