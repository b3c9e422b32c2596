"""The wheel has exactly the package, and the source archive what builds, tests and describes it."""

import sys
from pathlib import Path

from django_delayq._version import __version__
from tests.package.installed import ROOT, files_of, run, tracked

#: Bytes that a source archive may have. With pictures it would have a fifth more.
MOST = 2_400_000


def test_the_wheel_has_the_files_of_the_package_and_nothing_else(wheel: Path) -> None:
    info = f"django_delayq-{__version__}.dist-info/"
    files = files_of(wheel)
    assert wheel.name == f"django_delayq-{__version__}-py3-none-any.whl"
    assert {name for name in files if not name.startswith(info)} == tracked("django_delayq")
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert {name.removeprefix(info) for name in files if name.startswith(info)} == about


def test_the_wheel_has_what_is_no_python(wheel: Path) -> None:
    found = {Path(name).suffix or Path(name).name for name in files_of(wheel) if name.startswith("django_delayq/")}
    assert found == {".py", ".lua", ".html", ".css", ".js", ".po", ".mo", ".typed"}


def test_the_source_archive_is_what_git_has_without_bulk(source: Path) -> None:
    left_out = ("benchmarks/", "docs/images/", ".ci/", ".github/", ".dockerignore", ".readthedocs.yaml")
    files = files_of(source)
    assert files - {"PKG-INFO"} == {name for name in tracked() if not name.startswith(left_out)}
    assert source.stat().st_size < MOST


def test_an_index_accepts_both(archives: Path) -> None:
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", *archives.iterdir(), cwd=ROOT)
