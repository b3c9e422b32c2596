"""Declared schedules in real processes: a dispatcher stores and plants them, and so does a worker that stands in."""

import pytest

from tests.sample_app.tasks import noop
from tests.subprocesses import Processes


@pytest.mark.parametrize("with_dispatcher", [True, False])
def test_settings_are_all_that_it_takes(processes: Processes, with_dispatcher: bool) -> None:
    processes.configure(RECURRING={"tick": {"task": noop.name, "every": 1}})
    first = processes.worker()
    if with_dispatcher:
        processes.dispatcher()

    def runs() -> int:
        found = noop.schedules.get("tick")
        return 0 if found is None else len(found.runs)

    processes.until(lambda: runs() >= 3, what="three runs")
    processes.configure(RECURRING={})
    first.end()
    started = processes.dispatcher() if with_dispatcher else processes.worker()
    processes.until(lambda: noop.schedules.get("tick") is None, what=f"{started.pid} to declare nothing")
