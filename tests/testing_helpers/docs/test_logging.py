"""The page about logs and errors: its project, with the LOGGING that it shows, passes its own tests."""

import re
from pathlib import Path

from tests.testing_helpers.docs.pages import ROOT, files_in
from tests.testing_helpers.docs.projects import SETTINGS, Project

PAGE = (ROOT / "docs" / "logging.md").read_text()


def test_the_project_of_the_page_passes_its_tests(tmp_path: Path) -> None:
    [logging] = [block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S) if block[:7] == "LOGGING"]
    files = {**files_in(PAGE), "project/settings.py": f"APPS = ['shop']\n{SETTINGS}\n{logging}"}
    code, output = Project(tmp_path, files).pytest("shop")
    assert code == 0, output
    assert "3 passed" in output
