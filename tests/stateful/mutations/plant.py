"""Copy the package, plant a bug into the copy, and let processes import the copy."""

import os
import shutil
from pathlib import Path

import django_delayq
from tests.stateful.mutations.mutation import Mutation

PACKAGE, ROOT = Path(str(django_delayq.__file__)).parent, Path(__file__).parents[3]


def plant(bug: Mutation | None, folder: Path) -> dict[str, str]:
    """Copy the package into `folder`, with the bug if there is one. Return the environment that imports the copy."""
    copy = folder / PACKAGE.name
    # With the bytecode, or each process would compile the whole package; a file with a bug is newer than its bytecode.
    # Other processes may be writing bytecode, at first under a name that this pattern leaves out.
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.pyc.*"))
    for file, text, replacement in bug.edits if bug else ():
        source = (copy / file).read_text()
        assert source.count(text) == 1, f"{file} holds {text!r} {source.count(text)} times; it must occur once"
        (copy / file).write_text(source.replace(text, replacement))
    # -P for every Python: the copy is first on sys.path, not the current folder.
    paths = os.pathsep.join(map(str, (folder, ROOT)))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"}
