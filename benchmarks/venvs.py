"""Venvs: one for each system, with pinned versions, made on demand under benchmarks/.venvs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENVS = ROOT / "benchmarks" / ".venvs"
REQUIREMENTS = ROOT / "benchmarks" / "peers" / "requirements"
#: System -> the system whose venv it shares.
SHARED = {"floor": "delayq"}


class NoVenv(Exception):
    """The system cannot be installed on this machine. The message has the reason."""


def python_of(system: str) -> Path:
    """Return the Python of a system's venv. Makes the venv if it is missing or its pins have changed."""
    system = SHARED.get(system, system)
    pins = (REQUIREMENTS / f"{system}.txt").read_text()
    folder, stamp = VENVS / system, VENVS / system / ".pins"
    python = folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == pins:
        return python
    print(f"Setting up {system} (once) ...", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([_interpreter(pins), "-m", "venv", folder], check=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "-r", REQUIREMENTS / f"{system}.txt"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoVenv(f"pip could not install it: {done.stderr.strip().splitlines()[-1]}")
    stamp.write_text(pins)
    return python


def _interpreter(pins: str) -> str:
    """Return the current Python, or the one that the first line of the pins requires."""
    first = pins.partition("\n")[0]
    if not first.startswith("# Python "):
        return sys.executable
    wanted = tuple(int(part) for part in first.removeprefix("# Python ").split("."))
    if sys.version_info >= wanted:
        return sys.executable
    pyenv = Path.home().glob(f".pyenv/versions/{wanted[0]}.*/bin/python3")
    for name in (f"python{wanted[0]}.{minor}" for minor in range(wanted[1], wanted[1] + 4)):
        for found in filter(None, (shutil.which(name), *(str(path) for path in pyenv if name[6:] in str(path)))):
            run = subprocess.run(
                [found, "-c", "import venv, sys; print(sys.executable)"], capture_output=True, text=True
            )
            if run.returncode == 0:
                return run.stdout.strip()
    raise NoVenv(f"needs Python {first.removeprefix('# Python ')}, not found here")


def versions(python: Path) -> dict[str, str]:
    """Return the versions of the packages in a venv, by name."""
    code = (
        "import importlib.metadata, json; found = importlib.metadata.distributions();"
        "print(json.dumps({each.name.lower(): each.version for each in found}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found
