"""The planted bugs still fit the code they are planted in: each text is there once, and no two bugs are one."""

from pathlib import Path

import pytest

import django_delayq
from tests.mutation import MUTATIONS
from tests.stateful.mutations.engine import MORE
from tests.stateful.mutations.first import FIRST, PROMISES
from tests.stateful.mutations.limits import LIMITS
from tests.stateful.mutations.mutation import Mutation
from tests.stateful.mutations.schedule_runs import FIRST_OF_RUNS, RUNS
from tests.stateful.mutations.schedules import FIRST_OF_SCHEDULES, SCHEDULES
from tests.stateful.mutations.tenants import TENANTS
from tests.stateful.mutations.throttles import THROTTLES

PACKAGE, ROOT = Path(str(django_delayq.__file__)).parent, Path(__file__).parents[2]
OF_SCHEDULES = [*FIRST_OF_SCHEDULES, *FIRST_OF_RUNS, *SCHEDULES, *RUNS]
BUGS = [*FIRST, *PROMISES, *MORE, *TENANTS, *THROTTLES, *LIMITS, *OF_SCHEDULES, *MUTATIONS]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_fits_the_code_once(bug: Mutation) -> None:
    for file, text, replacement in bug.edits:
        assert (PACKAGE / file).read_text().count(text) == 1, f"{file}: plant it anew"
        assert replacement != text


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_code_with_a_planted_bug_compiles(bug: Mutation) -> None:
    """A module that cannot be imported is no failure of a test, so the bug would count as survived."""
    for file in {file for file, _, _ in bug.edits if file.endswith(".py")}:
        source = (PACKAGE / file).read_text()
        for _, text, replacement in (edit for edit in bug.edits if edit[0] == file):
            source = source.replace(text, replacement)
        compile(source, file, "exec")


def test_no_bug_is_planted_twice() -> None:
    assert len({bug.edits for bug in BUGS}) == len(BUGS)
    assert len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.parametrize("bug", MUTATIONS, ids=lambda bug: bug.name)
def test_the_tests_that_are_to_kill_it_are_there(bug: Mutation) -> None:
    assert all((ROOT / test.partition("::")[0]).exists() for test in MUTATIONS[bug])
