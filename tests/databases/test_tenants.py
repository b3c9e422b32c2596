"""Tenants: the middleware that docs/tasks/middleware.md shows runs each job in a schema of PostgreSQL."""

import os
from pathlib import Path

import pytest

from tests.databases import servers
from tests.testing_helpers.docs.pages import page, runs, shown
from tests.testing_helpers.docs.projects import SETTINGS, Project

NAME = "docs/tasks/middleware.md"
LISTED = shown(NAME, "python", "DELAYQ")
TENANTS, TEST = (shown(NAME, "python", f"# shop/{name}.py\n") for name in ("tenants", "test_tenants"))


@runs(TENANTS, TEST)
def test_the_job_of_a_tenant_runs_in_its_schema(tmp_path: Path) -> None:
    try:
        with servers.postgresql() as entry:
            databases = f"DATABASES = {{'default': {entry!r}}}"
            settings = f"APPS = ['shop']\n{SETTINGS}\n{LISTED}\n{databases}\n"
            project = Project(tmp_path, {**page("tasks/middleware.md"), "project/settings.py": settings})
            code, output = project.pytest("shop/test_tenants.py")
    except servers.ServerMissing as error:
        (pytest.fail if os.environ.get("DELAYQ_TEST_DATABASES") == "1" else pytest.skip)(str(error))
    assert code == 0, output
    assert "1 passed" in output
