"""Installed: the package as users get it: a wheel and a source archive, and a venv that has the wheel alone."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def files_of(archive: Path) -> set[str]:
    """Return the names of the files of a wheel or a source archive, the latter without its outer folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as source:
        return {member.name.partition("/")[2] for member in source.getmembers() if member.isfile()}


def tracked(*paths: str) -> set[str]:
    """Return the files that git has, below these paths."""
    listed = subprocess.run(["git", "ls-files", "-z", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(listed.stdout.split("\0")) - {""}


def own_environ() -> dict[str, str]:
    """Return the environment of this process without what leads to this checkout."""
    prefixes = ("PYTHON", "MYPY", "DJANGO", "DELAYQ")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def run(*words: str | Path, cwd: Path, **environ: str) -> str:
    """Run a command that knows nothing of this checkout; return what it printed. Fails if it exits with an error."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**own_environ(), **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class BareEnvironment:
    """A venv with a wheel, what the wheel requires, and nothing else."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        self.install(str(wheel))
        #: The names of what the wheel brought.
        self.packages = self._installed()

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def install(self, *words: str, **environ: str) -> None:
        """Install into it, as `pip install` does there."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        run(*pip, "install", "--quiet", "--no-compile", *words, cwd=self.folder, **environ)

    def _installed(self) -> set[str]:
        program = "from importlib.metadata import distributions as d; print(*(each.metadata['Name'] for each in d()))"
        return {
            re.sub("[-_.]+", "-", name).lower() for name in run(self.python, "-c", program, cwd=self.folder).split()
        }
