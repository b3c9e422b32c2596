"""The README is true: its code runs unchanged, and its commands, options and modules exist."""

import re
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from django_delayq.management.commands import delayq_check, run_worker
from tests.testing_helpers.docs.pages import python, runs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BENCHMARKS = (ROOT / "docs" / "reference" / "benchmarks.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
# `tests/testing_helpers` runs the tests it shows.
PYTHON = [text for text in python("README.md") if "def test_" not in text]
CONSOLE = [line[2:] for language, text in BLOCKS if language == "console" for line in text.splitlines()]


@runs(PYTHON)
def test_the_readmes_code_runs_as_it_stands(delayq_settings, tmp_path):
    # The last one is the setting of Django's own tasks.
    first, settings, tasks, use, backend = PYTHON
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(tasks)
    url = delayq_settings.DELAYQ["REDIS"]
    settings = settings.replace("redis://localhost:6379/0", url).replace('"django_delayq",', '"django_delayq", "shop",')
    (tmp_path / "readme_settings.py").write_text(settings + backend)
    (tmp_path / "shop" / "tasks.py").write_text(tasks + first.replace("from django_delayq import delayed_task", ""))
    program = (
        f"import django; django.setup()\n{use}\n"
        "job = send_reminder.after(days=30).enqueue(7)\n"
        "assert job.state == 'scheduled' and job.reschedule(delay=60) and job.cancel()\n"
        "assert get_job(job.id) is None and send_reminder.get_job(key='reminder:7').state == 'scheduled'\n"
        "from shop.tasks import close_bids; assert close_bids.after(minutes=10).enqueue(42).due\n"
        "from django.core.management import call_command; call_command('check')\n"
        "call_command('run_worker', drain=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PATH": "", "DJANGO_SETTINGS_MODULE": "readme_settings", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "is dead" not in done.stderr


@pytest.mark.parametrize("command", CONSOLE)
def test_every_command_of_the_readme_names_what_exists(command):
    words = command.split()
    paths = [word for word in words if word.endswith(".py") and word != "manage.py"]
    assert all((ROOT / path).exists() for path in paths)
    if "manage.py" in words:
        name = words[words.index("manage.py") + 1]
        assert (ROOT / "django_delayq" / "management" / "commands" / f"{name}.py").exists()


def test_every_figure_beside_other_systems_is_one_of_the_benchmarks():
    table = README.split("## Why")[1].split("\n## ")[0]
    rows = [row.split("|")[2:4] for row in table.splitlines() if re.match(r"\| [a-z0-9]", row)]
    assert len(rows) > 4
    for row in rows:
        for figure in re.findall(r"[\d,.]+\d(?: ms)?", " ".join(re.sub(r"\(.*?\)", "", cell) for cell in row)):
            assert f" {figure} " in BENCHMARKS, figure


def test_make_has_the_targets_the_readme_names():
    rules = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    assert set(re.findall(r"`make (\w+)", README)) <= targets


def test_the_command_table_names_every_option_of_a_command():
    table = README.split("## Commands")[1].split("\n## ")[0]
    django = options(BaseCommand())
    for command in (run_worker, delayq_check):
        name = command.__name__.rpartition(".")[2]
        rows = "\n".join(line for line in table.splitlines() if line.startswith(f"| `{name}"))
        assert options(command.Command()) - django == set(re.findall(r"--[a-z][a-z-]*", rows))


def test_the_command_table_names_options_that_exist():
    for row in README.split("## Commands")[1].split("\n## ")[0].splitlines():
        if named := re.match(r"\| `(\w+)", row):
            command = load_command_class("django_delayq", named[1])
            assert set(re.findall(r"--[a-z][a-z-]*", row)) <= options(command), row


def test_the_command_table_names_every_command():
    commands = {path.stem for path in (ROOT / "django_delayq" / "management" / "commands").glob("[!_]*.py")}
    assert set(re.findall(r"^\| `(\w+)", README.split("## Commands")[1].split("\n## ")[0], re.MULTILINE)) == commands


def options(command):
    actions = [action for action in command.create_parser("manage.py", "command")._actions if action.help != SUPPRESS]
    return {option for action in actions for option in action.option_strings if option.startswith("--")}
