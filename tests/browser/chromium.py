"""Chromium: the machine's own browser, found on PATH; none is ever downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Milliseconds until a wait is given up: machines that test are busy.
PATIENCE = 30_000


def find() -> str | None:
    """Return the program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def is_demanded() -> bool:
    """Whether a machine without a browser is one that fails."""
    return os.environ.get("CI", "").lower() in ("true", "1") or os.environ.get("DELAYQ_TEST_BROWSER") == "1"


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """Start it, and end it with the `with` block."""
    # Chromium refuses to sandbox what root runs.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options, timeout=PATIENCE)
        yield browser
        browser.close()
