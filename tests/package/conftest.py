"""Fixtures of the package as users get it. One process of pytest runs all these tests, so each is made once.

Without the extra `package` they are skipped; with DELAYQ_TEST_PACKAGE=1 they fail.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.package.installed import ROOT, BareEnvironment, run


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built as for a release: the wheel from the source archive."""
    if find_spec("build") is None or find_spec("twine") is None:
        missing = pytest.fail if os.environ.get("DELAYQ_TEST_PACKAGE") == "1" else pytest.skip
        missing("NOT RUN: pip install -e '.[package]' has what builds and checks the package")
    folder = tmp_path_factory.mktemp("archives")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def wheel(archives: Path) -> Path:
    """The wheel."""
    [found] = archives.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def source(archives: Path) -> Path:
    """The source archive."""
    [found] = archives.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> BareEnvironment:
    """A venv with the wheel and what it requires."""
    return BareEnvironment(tmp_path_factory.mktemp("bare") / "venv", wheel)
