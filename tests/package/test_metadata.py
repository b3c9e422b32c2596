"""What a package index shows is true: the versions that CI tests, addresses, and pictures that need no checkout."""

import re
import tomllib
from urllib.parse import urlsplit

import pytest
import yaml

from django_delayq._version import __version__
from tests.package.installed import ROOT, tracked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CI = (ROOT / ".ci" / "run").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
SOURCE = "https://github.com/django-delayq/django-delayq"


def classified(prefix: str) -> set[str]:
    """Return the versions that the classifiers name."""
    pattern = re.compile(rf"{re.escape(prefix)} :: (\d+\.\d+)")
    return {match[1] for each in PROJECT["classifiers"] if (match := pattern.fullmatch(each))}


def test_the_classifiers_name_the_versions_that_ci_tests() -> None:
    [pairs] = re.findall(r"^for pair in (.*); do$", CI, re.MULTILINE)
    [oldest] = re.findall(r"\[\.venv\]=\"python3 django==([\d.]+)\.\*\"", CI)
    tested = [pair.split(":") for pair in pairs.split()]
    # The default python3 may be any; that of the workflow is the oldest one.
    [floor] = re.findall(r"^>=(3\.\d+)$", PROJECT["requires-python"])
    assert classified("Programming Language :: Python") == {floor, *(python for python, _ in tested)}
    assert classified("Framework :: Django") == {oldest, *(django for _, django in tested)}
    assert f"django>={oldest}" in PROJECT["dependencies"]


def test_the_workflow_has_the_pythons_that_ci_looks_for() -> None:
    [setup] = [step["with"] for step in WORKFLOW["jobs"]["ci"]["steps"] if "setup-python" in step.get("uses", "")]
    *newer, default = setup["python-version"].split()
    # The last one is the default python3.
    assert {default, *newer} == classified("Programming Language :: Python")
    assert f">={default}" == PROJECT["requires-python"]


def test_the_addresses_are_those_of_the_project() -> None:
    assert PROJECT["urls"] == {
        "Documentation": "https://django-delayq.readthedocs.io/en/stable/",
        "Source": SOURCE,
        "Issues": f"{SOURCE}/issues",
        "Changelog": f"{SOURCE}/blob/main/CHANGELOG.md",
    }


def test_every_picture_of_the_readme_is_shown_outside_the_repository() -> None:
    text = (ROOT / "README.md").read_text()
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text) + re.findall(
        r"<(?:img|source)[^>]*\ssrc(?:set)?=\"([^\"]+)", text
    )
    own = f"{SOURCE}/raw/main/"
    assert pictures and all(urlsplit(address).scheme == "https" for address in pictures)
    files = {address.removeprefix(own) for address in pictures if address.startswith(own)}
    assert files <= tracked("docs")


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_every_requirement_of_an_extra_has_a_lowest_version(extra: str) -> None:
    named = [each for each in PROJECT["optional-dependencies"][extra] if not each.startswith("django-delayq")]
    assert [each for each in named if ">=" not in each] == []


def test_the_topmost_changes_are_those_of_the_version() -> None:
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None and re.fullmatch(
        rf"{re.escape(__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", heading[1]
    )


def test_the_page_of_releases_names_what_exists() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text()
    lines = re.findall(r"^ +\$ (.*)$", page, re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"bash", "rm", "git", ".venv/bin/pip", ".venv/bin/python"}
    assert {line.split()[-1] for line in lines if "pip install" in line} == {"'.[package]'"}
    modules = {line.split()[2] for line in lines if " -m " in line}
    extra = {each.split(">")[0] for each in PROJECT["optional-dependencies"]["package"]}
    assert modules == extra
    assert "bash .ci/run" in lines and "`django_delayq/_version.py`" in page
