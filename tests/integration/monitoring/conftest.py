"""The programs of Prometheus."""

import shutil

import pytest


@pytest.fixture
def programs() -> tuple[str, str]:
    """The paths of prometheus and promtool."""
    prometheus, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if not (prometheus and promtool):
        # The rest of monitoring is tested without it. CI installs it, and says so if it could not.
        pytest.skip("prometheus is not installed; on Debian: apt install prometheus")
    return prometheus, promtool
