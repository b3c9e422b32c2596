"""The public workflow is valid, may do nothing but read, and runs what everybody runs."""

import re

from tests.deployment.files import judge
from tests.package.installed import ROOT
from tests.package.test_metadata import WORKFLOW

PATH = ROOT / ".github" / "workflows" / "ci.yml"
JOB = WORKFLOW["jobs"]["ci"]


def test_the_workflow_is_valid() -> None:
    judge("check-jsonschema", "--builtin-schema", "vendor.github-workflows", PATH, package="check-jsonschema")


def test_it_runs_the_script_of_the_repository_and_no_commands_of_its_own() -> None:
    assert [step["run"] for step in JOB["steps"] if "run" in step] == ['sudo env "PATH=$PATH" bash .ci/run']
    assert (ROOT / ".ci" / "run").exists()


def test_it_may_only_read_and_ends_in_time() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"} and "permissions" not in JOB
    assert 0 < JOB["timeout-minutes"] <= 60
    [checkout] = [step for step in JOB["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"] == {"persist-credentials": False}


def test_every_action_is_one_of_github_by_its_commit_and_says_which_version_that_is() -> None:
    used = re.findall(r"uses: (.*)$", PATH.read_text(), re.MULTILINE)
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used)
