"""docs/deployment.md: every command that it shows names what exists, and its settings are legal."""

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class

from django_delayq.conf.settings import read_config
from tests.deployment.files import FOLDER, MANIFESTS, ROOT, UNITS, container, judge, of_kind, services
from tests.testing_helpers.docs.pages import PAGES, blocks, runs, shown

NAME = "docs/deployment.md"
PAGE = PAGES[NAME]
BLOCKS = [block for block in blocks() if block.page == NAME]
LINES = [line.removeprefix("$ ") for block in BLOCKS if block.language == "console" for line in block.text.splitlines()]
PROBE = shown(NAME, "yaml")
SETTINGS = shown(NAME, "python")
UNIT_NAMES = {path.name for path in UNITS}


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
    words = shlex.split(line.removeprefix("sudo "))
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
