"""Planting: copy the package, put a bug into the copy, and have processes meet the copy first."""

import os
import shutil
from pathlib import Path

import django_delayq
from tests.stateful.mutations import Mutation

PACKAGE, ROOT = Path(str(django_delayq.__file__)).parent, Path(__file__).parents[2]


def plant(bug: Mutation | None, folder: Path) -> dict[str, str]:
    """Copy the package into `folder`, with the bug if there is one; returns the environment that leads to the copy."""
    copy = folder / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, replacement in bug.edits if bug else ():
        source = (copy / file).read_text()
        assert source.count(text) == 1, f"{file} holds {text!r} {source.count(text)} times: plant the bug anew"
        (copy / file).write_text(source.replace(text, replacement))
    # -P wherever Python is started: what comes first on sys.path is the copy, not the folder we are in.
    paths = os.pathsep.join(map(str, (folder, ROOT)))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"}
