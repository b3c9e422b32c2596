"""The walk in docs/internals/walk.md is the whole walk: a real job passes through no module that it does not name."""

import re
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import django_delayq
from django_delayq import get_store
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.store.promotion import Promotion
from tests.sample_app import tasks
from tests.stepped_worker import await_notification, step_until_idle, stepped_worker
from tests.subprocesses import until

PACKAGE = Path(django_delayq.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "internals" / "walk.md").read_text(encoding="utf-8")
#: Met everywhere: values, clocks and exceptions.
EVERYWHERE = re.compile(r"job/.*|conf/config\.py|store/keys\.py|clock\.py|runtime\.py|exceptions\.py")


def walk() -> set[str]:
    """Return the files that the page names, as paths inside the package."""
    names = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|lua))`", PAGE)) - {"tasks.py"}
    return {name if (PACKAGE / name).exists() else f"store/{name}" for name in names}


class Recorder:
    """Records the modules of the package whose code runs, in any thread."""

    def __init__(self) -> None:
        self.met: set[str] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            self.met.add(Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix())

    @contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def files(self) -> set[str]:
        return {name for name in self.met if not EVERYWHERE.fullmatch(name)}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    # Threads of the pool, of heartbeats and of the emitter start later.
    threading.setprofile(made)
    yield made
    threading.setprofile(None)  # type: ignore[arg-type]


def test_every_file_of_the_walk_exists() -> None:
    assert [name for name in walk() if not (PACKAGE / name).exists()] == []


def test_a_job_meets_only_the_files_of_the_walk(delayq_settings: Any, recorder: Recorder) -> None:
    store = get_store()
    shard = store.shards[0]
    dispatcher = Dispatcher(shard, Promotion(shard))

    def is_promoted() -> bool:
        seconds = dispatcher.step() or 0.0
        select.select([dispatcher.listen()], [], [], min(seconds, 0.05))
        return job.refresh().state == "ready"

    def is_done() -> bool:
        with recorder.recording():
            worker.step()
        return job.refresh().state == "gone"

    with stepped_worker() as worker:
        # What is done once a process: the server learns the scripts, the worker learns the queue.
        tasks.noop.enqueue()
        step_until_idle(worker)
        # An enqueue does so once in some seconds: this one would if the machine is slow.
        store.layouts.read()
        recorder.met.clear()
        # Apart: threads of the worker may still end what the first job began.
        enqueue = Recorder()
        with enqueue.recording():
            job = tasks.noop.after(seconds=0.1).enqueue()
        with recorder.recording():
            worker.listen()
            dispatcher.step()
            dispatcher.listen()
        until(is_promoted, what="the job to be ready")
        with recorder.recording():
            await_notification(worker)
        until(is_done, what="the job to end")
        dispatcher.close()

    assert enqueue.files <= walk() and len(enqueue.files) <= 18
    assert sorted(recorder.files - walk()) == []
    assert len(recorder.files | enqueue.files) <= 50
