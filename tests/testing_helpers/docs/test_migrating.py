"""The page about migrating from other task queues: its sections and names. test_projects.py runs its code."""

import re

import pytest

from django_delayq import signals
from tests.testing_helpers.docs.pages import (
    PAGES,
    SECTIONS,
    file_blocks,
    files_in,
    migrating_part,
    recurring_part,
    runs,
)


def test_every_section_has_its_three_parts() -> None:
    assert len(SECTIONS) == 5
    for section, text in SECTIONS.items():
        # The fifth is about backends of Django's tasks, which have no recurring jobs.
        parts = ["Before", "After", "What differs", *(["Recurring jobs"] if section in list(SECTIONS)[:4] else [])]
        assert re.findall(r"^### (.*)", text, re.MULTILINE) == parts, section


# Code of other systems is compiled.
@runs(*(file_blocks(part(section, "Before")) for section in SECTIONS for part in (migrating_part, recurring_part)))
@pytest.mark.parametrize("section", SECTIONS)
def test_the_files_before_a_migration_are_python(section: str) -> None:
    files = files_in(migrating_part(section, "Before"))
    assert {"shop/tasks.py", "shop/reminders.py"} <= set(files)
    for path, text in [*files.items(), *files_in(recurring_part(section, "Before")).items()]:
        compile(text, path, "exec")


def test_the_signals_that_the_page_names_exist() -> None:
    lines = PAGES["docs/start/migrating.md"].splitlines()
    [row] = [line.split("|")[2] for line in lines if line.startswith("| signals |")]
    assert all(hasattr(signals, name) for name in re.findall(r"`(\w+)`", row))
