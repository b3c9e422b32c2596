"""Files: the examples of a deployment, as data, and the programs that judge them.

If a program is missing, its tests are skipped; with DELAYQ_TEST_DEPLOYMENT=1 they fail.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.conf.validators import settings_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "example_project"
FOLDER = ROOT / "docs" / "deployment"
UNITS = sorted((FOLDER / "systemd").iterdir())
MANIFESTS = sorted((FOLDER / "kubernetes").iterdir())
COMPOSE = EXAMPLE / "compose.yaml"
DOCKERFILE = EXAMPLE / "Dockerfile"
#: Seconds after which the jobs of a process that does nothing are taken back.
LEASE = settings_of(WorkerConfig)["LEASE"].default // SECOND_US
#: Seconds that a worker has to stop: GRACE, and 10 s for the rest.
STOP = settings_of(WorkerConfig)["GRACE"].default // SECOND_US + 10


def not_run(reason: str) -> None:
    """Skip the test, or fail if DELAYQ_TEST_DEPLOYMENT is 1."""
    (pytest.fail if os.environ.get("DELAYQ_TEST_DEPLOYMENT") == "1" else pytest.skip)(f"NOT RUN: {reason}")


def judge(program: str, *arguments: str | Path, package: str) -> str:
    """Run a program that judges files; return what it printed. Fails if it exits with an error."""
    path = shutil.which(program, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if path is None:
        not_run(f"there is no {program} on this machine; it is in {package}")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def unit(path: Path) -> dict[str, list[str]]:
    """Return the values of each key of a unit, in their order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def manifests() -> list[dict[str, Any]]:
    """Return every Kubernetes object, with KEDA's."""
    return [each for path in (*MANIFESTS, FOLDER / "keda.yml") for each in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of a kind."""
    return [each for each in manifests() if each["kind"] == kind]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the only container of a Deployment or Job."""
    [found] = workload["spec"]["template"]["spec"]["containers"]
    return found  # type: ignore[no-any-return]


def services() -> dict[str, dict[str, Any]]:
    """Return the services of Compose."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the words after manage.py of every command that a file starts."""
    for path in UNITS:
        [line] = unit(path)["ExecStart"]
        yield path.name, shlex.split(line)[2:]
    for workload in (*of_kind("Deployment"), *of_kind("Job")):
        yield workload["metadata"]["name"], container(workload)["command"][2:]
    for name, service in services().items():
        if service.get("command", [])[:2] == ["python", "manage.py"]:
            yield f"compose {name}", service["command"][2:]
