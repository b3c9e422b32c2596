"""Fixtures of the upgrade tests: the package as it was before, beside the one under test.

`package_before_0_1_0.tar.xz` holds the package, without its admin, of the last commit whose bodies and records have
neither retry rules, expiry, context, progress nor encryption. It is a file, so that the tests need no history of git.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.subprocesses import ROOT

ARCHIVE = Path(__file__).parent / "package_before_0_1_0.tar.xz"


@pytest.fixture(scope="session")
def older_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the older package. First in a process's PYTHONPATH, it is the one that the process imports."""
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def in_older_package(older_package: Path) -> Callable[[str, bytes], str]:
    """Run a script with the older package, hand it bytes on standard input, and return what it prints."""

    def run(script: str, data: bytes = b"") -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=data,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            # `python -c` searches its working directory first.
            cwd=older_package,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()

    return run
