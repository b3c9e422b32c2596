"""The watch of an event loop over the ends of jobs."""

import asyncio
from typing import Any

import pytest

from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.queries.result_waiter import EndWatch


class Looks:
    """A lookup whose answers come from a list; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def ended(self, raw_ids: list[bytes]) -> set[bytes]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return set(answer)


@pytest.mark.parametrize("error", [StoreUnavailable("down"), RuntimeError("no more threads")], ids=repr)
def test_all_who_wait_learn_an_error_and_later_ones_wait_again(error: Exception) -> None:
    async def main() -> list[Any]:
        watch = EndWatch(Looks(error, [b"c"]))  # type: ignore[arg-type]
        first = await asyncio.gather(watch.wait(b"a", None), watch.wait(b"b", None), return_exceptions=True)
        return [*first, await watch.wait(b"c", None)]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [error, error, None]
