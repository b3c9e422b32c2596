"""The machine's own Chromium, found on PATH; nothing is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

#: The programs, the first one preferred: the same engine without the parts of a desktop browser takes a third of the
#: CPU time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Milliseconds until a wait times out; test machines are busy.
PATIENCE = 30_000


def find() -> str | None:
    """Return the program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def is_demanded() -> bool:
    """Whether a missing browser is a failure."""
    return os.environ.get("CI", "").lower() in ("true", "1") or os.environ.get("DELAYQ_TEST_BROWSER") == "1"


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """Start the browser for the `with` block."""
    # Chromium has no sandbox if root runs it.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options, timeout=PATIENCE)
        yield browser
        browser.close()
