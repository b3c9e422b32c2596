"""Page: the code in docs/tasks/django-tasks.md runs unchanged, and its table of options is complete."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from django_delayq.conf import settings as conf
from tests.django_tasks.compat import NAME
from tests.testing_helpers.docs.pages import PAGES, python, runs

ROOT = Path(__file__).parent.parent.parent
PAGE = PAGES["docs/tasks/django-tasks.md"]
BLOCKS = python("docs/tasks/django-tasks.md")


@runs(BLOCKS)
def test_the_code_of_the_page_runs_unchanged(delayq_settings: Any, tmp_path: Path) -> None:
    settings, tasks, use, options = BLOCKS
    url = delayq_settings.DELAYQ["REDIS"]
    apps = '"django_delayq", "shop",' if NAME == "django.tasks" else '"django_delayq", "django_tasks", "shop",'
    settings = settings.replace("redis://localhost:6379/0", url).replace('"django_delayq",', apps)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(tasks.replace("from django.tasks import", f"from {NAME} import"))
    (tmp_path / "page_settings.py").write_text(f"{settings}\n{options}")
    program = (
        "import django; django.setup()\n"
        "from django.core.management import call_command; call_command('check')\n"
        f"{use}\n"
        "later.refresh(); assert later.errors[0].exception_class_path.endswith('JobCancelled')\n"
        "assert resize.enqueue(7).id == result.id, 'its key'\n"
        "asked = ask_the_bank.enqueue(3)\n"
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'django', 'run_worker', '--drain'], check=True)\n"
        "result.refresh(); asked.refresh()\n"
        "assert (result.return_value, asked.return_value) == ('picture 7 is smaller now', 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "page_settings", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_table_of_options_names_every_key_and_no_other() -> None:
    table = PAGE.split("## OPTIONS")[1].split("\n\nThe keys")[0]
    keys = re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE)
    assert set(keys) == {*conf.EXTRA_KEYS, *conf.OWN_KEYS}
