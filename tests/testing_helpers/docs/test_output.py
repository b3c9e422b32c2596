"""Output: what the pages show of the output of commands is what the code prints."""

from pathlib import Path

from django_delayq.management.commands.delayq_stats import _BAR
from django_delayq.management.operating import progress_bar
from tests.testing_helpers.docs.generated import DOCS, KEYS_PAGE, diagrams, keys_page
from tests.testing_helpers.docs.pages import shown

PROGRESS = shown("docs/tasks/handles.md", "text")


def test_the_bar_of_a_running_job() -> None:
    assert f"{progress_bar(0.4, width=_BAR)} {0.4:4.0%} 2,000 of 5,000\n" == PROGRESS


def test_the_table_of_keys_is_the_generated_one() -> None:
    assert KEYS_PAGE.read_text() == keys_page(), "run `make pages` and commit it"


def test_the_diagrams_are_those_that_the_script_draws() -> None:
    images: dict[str, Path] = {name: DOCS / "images" / name for name in diagrams()}
    drawn = {name: path.read_text() for name, path in images.items()}
    assert drawn == diagrams(), "run `make pages` and commit it"
    page = KEYS_PAGE.read_text()
    assert all(f"](../images/{name})" in page for name in images)
