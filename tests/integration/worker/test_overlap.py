"""Overlap: Redis claims the next jobs while the pool runs the last ones."""

from typing import Any

import pytest

from django_delayq.worker import worker as worker_module
from tests.sample_app import tasks
from tests.stepped_worker import step_until_idle, stepped_worker


def test_a_worker_gives_the_interpreter_to_its_idle_pool_only_if_no_more_can_be_claimed(
    delayq_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    monkeypatch.setattr(worker_module, "sleep", given.append)
    with stepped_worker() as worker:
        # It learns the queue, and that jobs are short: from now on it claims 64 at once.
        tasks.noop.enqueue()
        step_until_idle(worker)
        for number, expected in ((65, []), (1, [0])):
            given.clear()
            tasks.noop.enqueue_many([()] * number)
            worker._work_available = True
            worker.step()
            assert given == expected
            step_until_idle(worker)
