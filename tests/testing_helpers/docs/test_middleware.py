"""The page about middleware: its project, with the list of classes that it shows, passes its own tests."""

from pathlib import Path

from tests.testing_helpers.docs.pages import ROOT, files_in, shown
from tests.testing_helpers.docs.projects import SETTINGS, Project

PAGE = (ROOT / "docs" / "tasks" / "middleware.md").read_text()
FILES = files_in(PAGE)
#: The settings that the page shows, with a server that no test reaches.
LISTED = shown("docs/tasks/middleware.md", "python", "DELAYQ") + "DELAYQ['REDIS'] = 'redis://127.0.0.1:1/0'\n"


def test_the_project_of_the_page_passes_its_tests(tmp_path: Path) -> None:
    settings = f"APPS = ['shop']\n{SETTINGS}\n{LISTED}"
    code, output = Project(tmp_path, {**FILES, "project/settings.py": settings}).pytest(
        "shop/test_middleware.py", "shop/test_supplied.py", "shop/test_tracing.py"
    )
    assert code == 0, output
    assert "6 passed" in output
