"""The machine catches bugs: each planted alone, in a copy of the package that a process of its own walks with."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

import django_delayq
from tests.machine.planted_bugs import FIRST, MORE, PlantedBug
from tests.machine.planted_process import SAW_IT, SAW_NOTHING

PACKAGE, ROOT = Path(str(django_delayq.__file__)).parent, Path(__file__).parents[2]
#: Walks a bug may take to be seen; the order of steps is the same in every run.
EXAMPLES = 100


def walk_with(bug: PlantedBug | None, folder: Path, url: str, examples: int) -> subprocess.CompletedProcess[str]:
    copy = folder / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, replacement in bug.edits if bug else ():
        source = (copy / file).read_text()
        assert source.count(text) == 1, f"{file} holds {text!r} {source.count(text)} times: plant the bug anew"
        (copy / file).write_text(source.replace(text, replacement))
    # -P: what comes first on sys.path is the copy, not the folder we are in.
    command = [sys.executable, "-P", "-m", "tests.machine.planted_process", str(folder), url, str(examples)]
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


def check_caught(bug: PlantedBug, folder: Path, url: str) -> None:
    ended = walk_with(bug, folder, url, EXAMPLES)
    assert ended.returncode == SAW_IT, f"{bug.name}: {ended.stdout}{ended.stderr}"


def test_a_copy_without_a_bug_passes(client: Redis, redis_url: str, tmp_path: Path) -> None:
    ended = walk_with(None, tmp_path, redis_url, EXAMPLES)
    assert ended.returncode == SAW_NOTHING, ended.stdout + ended.stderr


@pytest.mark.parametrize("bug", FIRST, ids=lambda bug: bug.name)
def test_machine_catches(bug: PlantedBug, client: Redis, redis_url: str, tmp_path: Path) -> None:
    check_caught(bug, tmp_path, redis_url)


@pytest.mark.slow
@pytest.mark.parametrize("bug", MORE, ids=lambda bug: bug.name)
def test_machine_catches_more(bug: PlantedBug, client: Redis, redis_url: str, tmp_path: Path) -> None:
    check_caught(bug, tmp_path, redis_url)
