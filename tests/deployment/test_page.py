"""docs/deployment.md: every command that it shows names what exists, and its settings are legal."""

import os
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class

from django_delayq.conf.settings import read_config
from tests.deployment.files import FOLDER, MANIFESTS, ROOT, UNITS, container, judge, manifests, of_kind, services, unit
from tests.testing_helpers.docs.pages import PAGES, blocks, runs, shown

NAME = "docs/deployment.md"
PAGE = PAGES[NAME]
BLOCKS = [block for block in blocks() if block.page == NAME]
LINES = [line.removeprefix("$ ") for block in BLOCKS if block.language == "console" for line in block.text.splitlines()]
PROBE = shown(NAME, "yaml")
SETTINGS = shown(NAME, "python")
UNIT_NAMES = {path.name for path in UNITS}
#: The lines about the Job of check.yaml, from its output to the rollout.
AFTER_CHECK = [line for line in LINES if "job/delayq-check" in line]
#: A stand-in for a cluster: the Job has the condition $CONDITION, and a wait for another one ends after its timeout.
KUBECTL = """\
#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in logs* | apply* | *"--for=condition=$CONDITION "*) exit 0 ;; *) exit 1 ;; esac
"""


def check_systemd(words: list[str]) -> None:
    names = [word.rpartition("/")[2] for word in words if word.endswith(".service")]
    assert names or words[-1] == "daemon-reload"
    assert {re.sub(r"@\w+", "@", name) for name in names} <= UNIT_NAMES


def check_compose(words: list[str]) -> None:
    assert words[1] == "compose" and (ROOT / words[words.index("-f") + 1]).exists()
    assert {word.partition("=")[0] for word in words if "=" in word} <= services().keys()


def check_kubectl(words: list[str]) -> None:
    files = {word for flag, word in zip(words, words[1:], strict=False) if flag == "-f"}
    objects = {tuple(word.split("/")) for word in words if "/" in word}
    assert files or objects
    assert files <= {path.name for path in MANIFESTS}
    there = {(kind.lower(), each["metadata"]["name"]) for kind in ("Job", "Deployment") for each in of_kind(kind)}
    assert objects <= there


def check_django(words: list[str]) -> None:
    assert words[1] == "manage.py"
    load_command_class("django_delayq", words[2]).create_parser("manage.py", words[2]).parse_args(words[3:])


CHECKS = {
    **dict.fromkeys(("cp", "systemctl", "systemd-analyze"), check_systemd),
    "docker": check_compose,
    "kubectl": check_kubectl,
    "python": check_django,
}


@pytest.mark.parametrize("line", LINES)
def test_every_command_names_what_exists(line: str) -> None:
    for command in line.split(" && "):
        words = shlex.split(command.removeprefix("sudo "))
        CHECKS[words[0]](words)


def test_the_page_has_no_code_that_nothing_checks() -> None:
    assert {block.language for block in BLOCKS} == {"console", "python", "yaml"}


@runs(PROBE)
def test_the_probe_by_a_command_is_valid(tmp_path: Path) -> None:
    probe = yaml.safe_load(PROBE)
    [worker] = [each for each in of_kind("Deployment") if each["metadata"]["name"] == "delayq-worker"]
    container(worker).update(probe)
    check_django(probe["readinessProbe"]["exec"]["command"])
    (tmp_path / "worker.yaml").write_text(yaml.safe_dump(worker))
    judge("kubernetes-validate", "--strict", tmp_path / "worker.yaml", package="kubernetes-validate")


@runs(SETTINGS)
def test_the_settings_are_legal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.py").write_text(SETTINGS)
    monkeypatch.setenv("REDIS_URL", "redis://localhost:6379/0")
    monkeypatch.setenv("RELEASE", "1.0")
    found: Any = runpy.run_path(str(tmp_path / "settings.py"))
    config, problems = read_config(found["DELAYQ"])
    assert problems == [] and config is not None and config.worker.release == "1.0"


def test_the_page_names_every_file() -> None:
    files = [path.relative_to(FOLDER.parent).as_posix() for path in FOLDER.rglob("*") if path.is_file()]
    assert files and [name for name in files if f"({name})" not in PAGE] == []


@pytest.mark.parametrize(("condition", "is_applied"), [("complete", True), ("failed", False)])
def test_only_a_check_that_succeeded_is_followed_by_the_rollout(
    condition: str, is_applied: bool, tmp_path: Path
) -> None:
    kubectl, calls = tmp_path / "kubectl", tmp_path / "calls"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CONDITION": condition, "CALLS": str(calls)}
    result = subprocess.run(["sh", "-c", "\n".join(AFTER_CHECK)], env=environ)
    assert (result.returncode == 0) == is_applied
    verbs = [line.split()[0] for line in calls.read_text().splitlines()]
    assert verbs == ["logs", "wait", *(["apply"] if is_applied else [])]


def test_the_output_of_the_check_is_awaited_until_its_job_ends() -> None:
    [job] = of_kind("Job")
    [minutes] = re.findall(r"--pod-running-timeout=(\d+)m", AFTER_CHECK[0])
    assert int(minutes) * 60 > job["spec"]["activeDeadlineSeconds"]


def values() -> dict[str, set[str]]:
    """Return every value that a key has in a unit, a manifest or the Compose file."""
    found: dict[str, set[str]] = {}
    for path in UNITS:
        for key, texts in unit(path).items():
            # Its workers and its dispatcher differ in the time to stop; the page says that of workers.
            if "worker" in path.name:
                found.setdefault(key, set()).update(texts)
    workers = [each for each in manifests() if each["metadata"]["name"] != "delayq-dispatcher"]
    for key, value in leaves([*workers, services()["worker"]]):
        found.setdefault(key, set()).add(str(value))
    return found


def leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key whose value is neither a list nor a dict, with it."""
    for each in value if isinstance(value, list) else [value]:
        for key, inner in each.items() if isinstance(each, dict) else ():
            if isinstance(inner, list | dict):
                yield from leaves(inner)
            else:
                yield key, inner


def test_every_value_that_the_page_names_is_that_of_the_files() -> None:
    named = re.findall(r"`([A-Za-z_]+)(?:=|: )([\w-]+)`", PAGE)
    assert len(named) >= 8
    there = values()
    assert [(key, value) for key, value in named if there.get(key) != {value}] == []
