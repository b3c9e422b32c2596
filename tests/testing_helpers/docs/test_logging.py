"""The page about logs and errors: its project, with the LOGGING that it shows, passes its own tests."""

import re
from pathlib import Path
from typing import Any

from django.dispatch import Signal

from django_delayq import signals
from django_delayq.testing import DelayQ
from tests.testing_helpers import tasks
from tests.testing_helpers.docs.pages import PAGES, file_blocks, files_in, runs, shown
from tests.testing_helpers.docs.projects import SETTINGS, Project

PAGE, MIGRATING = PAGES["docs/running/logging.md"], PAGES["docs/start/migrating.md"]
FILES = files_in(PAGE)
LOGGING = shown("docs/running/logging.md", "python", "LOGGING")


@runs(LOGGING, file_blocks(PAGE))
def test_the_project_of_the_page_passes_its_tests(tmp_path: Path) -> None:
    files = {**FILES, "project/settings.py": f"APPS = ['shop']\n{SETTINGS}\n{LOGGING}"}
    code, output = Project(tmp_path, files).pytest("shop")
    assert code == 0, output
    assert "4 passed" in output


def test_each_signal_has_the_arguments_that_the_pages_name(delayq: DelayQ, settings: Any) -> None:
    """Live through every signal: a job that dies, one that expires, one that is dropped."""
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": {"daily": {"rate": "1/d"}}}
    named = dict(re.findall(r"^\| `(job_\w+)` \|.*\| ([^|]*) \|$", PAGE, re.M))
    sent: dict[str, set[str]] = {}
    names = {name: getattr(signals, name) for name in vars(signals) if name.startswith("job_")}
    names = {name: signal for name, signal in names.items() if isinstance(signal, Signal)}
    receivers = []
    for name, signal in names.items():

        def receive(sender: Any, signal: Any, name: str = name, **arguments: Any) -> None:
            sent[name] = set(arguments)

        signal.connect(receive)
        receivers.append((signal, receive))
    try:
        tasks.charge.enqueue(5)
        tasks.send_reminder.using(expires=1).after(hours=1).enqueue(7)
        for _ in range(2):
            tasks.send_reminder.using(limit="daily", on_limit="drop").enqueue(7)
        delayq.advance(hours=2)
        delayq.drain(errors="retry")
    finally:
        for signal, receive in receivers:
            signal.disconnect(receive)
    assert {name: set(re.findall(r"`(\w+)`", text)) for name, text in named.items()} == sent
    assert set(sent) == set(names)
    # A row of the other page names the signal first, and has no arguments if an earlier row has them.
    rows = re.findall(r"^\| [^|]* \| `(job_\w+)`[^|]* \| (`[^|]*) \|$", MIGRATING, re.M)
    assert {name: set(re.findall(r"`(\w+)`", text)) for name, text in rows} == sent
