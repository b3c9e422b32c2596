"""The machine catches planted bugs: each alone, in a copy of the package that a separate process imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from tests.stateful.mutations.engine import MORE
from tests.stateful.mutations.first import FIRST, PROMISES
from tests.stateful.mutations.limits import LIMITS
from tests.stateful.mutations.mutation import Mutation
from tests.stateful.mutations.plant import plant
from tests.stateful.mutations.process import DETECTED, PASSED
from tests.stateful.mutations.schedule_runs import FIRST_OF_RUNS, RUNS
from tests.stateful.mutations.schedules import FIRST_OF_SCHEDULES, SCHEDULES
from tests.stateful.mutations.tenants import TENANTS
from tests.stateful.mutations.throttles import THROTTLES

#: The most walks until a bug must be detected, and the walks of a copy without a bug. Every run walks the same, but a
#: change of the rules or of these numbers changes all walks.
EXAMPLES, WITHOUT_BUG = 250, 15


def walk_with(
    bug: Mutation | None, folder: Path, url: str, examples: int, machine: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = plant(bug, folder)
    command = [sys.executable, "-m", "tests.stateful.mutations.process", str(folder), url, str(examples), machine]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


def check_caught(bug: Mutation, folder: Path, url: str, examples: int, machine: str = "") -> None:
    ended = walk_with(bug, folder, url, examples, machine)
    assert ended.returncode == DETECTED, f"{bug.name}: {ended.stdout}{ended.stderr}"


@pytest.mark.parametrize(
    "machine", ["", pytest.param("limits", marks=pytest.mark.slow), pytest.param("schedules", marks=pytest.mark.slow)]
)
def test_copy_without_bug_passes(machine: str, client: Redis, redis_url: str, tmp_path: Path) -> None:
    ended = walk_with(None, tmp_path, redis_url, WITHOUT_BUG, machine)
    assert ended.returncode == PASSED, ended.stdout + ended.stderr


@pytest.mark.parametrize("bug", FIRST, ids=lambda bug: bug.name)
def test_state_machine_detects_bug(bug: Mutation, client: Redis, redis_url: str, tmp_path: Path) -> None:
    check_caught(bug, tmp_path, redis_url, EXAMPLES)


@pytest.mark.parametrize("bug", FIRST_OF_RUNS, ids=lambda bug: bug.name)
def test_state_machine_detects_first_bug_of_schedules(
    bug: Mutation, client: Redis, redis_url: str, tmp_path: Path
) -> None:
    check_caught(bug, tmp_path, redis_url, EXAMPLES, "schedules")


@pytest.mark.slow
@pytest.mark.parametrize("bug", [*PROMISES, *MORE, *TENANTS, *THROTTLES], ids=lambda bug: bug.name)
def test_state_machine_detects_further_bug(bug: Mutation, client: Redis, redis_url: str, tmp_path: Path) -> None:
    check_caught(bug, tmp_path, redis_url, EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("bug", LIMITS, ids=lambda bug: bug.name)
def test_state_machine_detects_bug_of_limits(bug: Mutation, client: Redis, redis_url: str, tmp_path: Path) -> None:
    check_caught(bug, tmp_path, redis_url, EXAMPLES, "limits")


@pytest.mark.slow
@pytest.mark.parametrize("bug", [*FIRST_OF_SCHEDULES, *SCHEDULES, *RUNS], ids=lambda bug: bug.name)
def test_state_machine_detects_bug_of_schedules(bug: Mutation, client: Redis, redis_url: str, tmp_path: Path) -> None:
    check_caught(bug, tmp_path, redis_url, EXAMPLES, "schedules")
