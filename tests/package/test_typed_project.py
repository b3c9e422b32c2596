"""A typed project passes `mypy --strict` with the installed wheel, and mypy reports its wrong uses."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.package.installed import BareEnvironment, own_environ

PROJECT = Path(__file__).parent / "typed_project"
IGNORED = re.compile(r"  # type: ignore\[([\w,-]+)\]$")


@pytest.fixture(scope="session")
def typed(bare: BareEnvironment) -> BareEnvironment:
    """The venv, with the types of Django, as a typed project has them."""
    stubs = [f"{name}=={version(name)}" for name in ("django-stubs", "django-stubs-ext", "types-PyYAML")]
    bare.install("--no-deps", *stubs)
    return bare


def check(environment: BareEnvironment, folder: Path) -> tuple[int, str]:
    """Run mypy on a project that has the packages of the environment alone; return its exit code and its output."""
    command = [sys.executable, "-m", "mypy", "--strict", "-v", "--python-executable", environment.python, "shop"]
    cache = ["--config-file", "", "--cache-dir", folder.parent / "mypy_cache"]
    done = subprocess.run(
        [*command, *cache], cwd=folder, env=own_environ(), capture_output=True, text=True, timeout=300, check=False
    )
    # It reads the wheel, and not this checkout.
    read = set(re.findall(r"\S*/django_delayq/__init__\.py", done.stderr))
    assert read and all(path.startswith(str(environment.folder)) for path in read), done.stderr[-1_000:]
    return done.returncode, done.stdout


def test_mypy_accepts_right_uses_and_reports_each_wrong_one(typed: BareEnvironment, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    code, output = check(typed, folder)
    assert code == 0, output
    # The same without the comments: mypy must say why for each of them, and nothing else.
    wrong = folder / "shop" / "wrong.py"
    lines = wrong.read_text().splitlines()
    expected = {number: match[1].split(",") for number, line in enumerate(lines, 1) if (match := IGNORED.search(line))}
    wrong.write_text("\n".join(IGNORED.sub("", line) for line in lines) + "\n")
    code, output = check(typed, folder)
    found: dict[int, list[str]] = {}
    for number, reason in re.findall(r"^shop/wrong\.py:(\d+): error: .*\[([\w-]+)\]$", output, re.MULTILINE):
        found.setdefault(int(number), []).append(reason)
    assert code == 1 and len(expected) > 15
    assert {number: set(reasons) for number, reasons in found.items()} == {
        number: set(reasons) for number, reasons in expected.items()
    }, output
    assert output.count(": error: ") == sum(map(len, found.values()))
