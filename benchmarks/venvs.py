"""Venvs: each system's own, with pinned versions, made on demand under benchmarks/.venvs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENVS = ROOT / "benchmarks" / ".venvs"
REQUIREMENTS = ROOT / "benchmarks" / "peers" / "requirements"
#: What the loops of `floor.py` use is the client that we use.
SHARED = {"floor": "delayq"}


class NoVenv(Exception):
    """The system cannot be installed here; the reason is the message."""


def python_of(system: str) -> Path:
    """Return the Python of a system's venv, which is made if it is not there or its pins have changed."""
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
    """Return the Python that all run on, or the one that the first line of the pins asks for."""
    first = pins.partition("\n")[0]
    if not first.startswith("# Python "):
        return sys.executable
    wanted = tuple(int(part) for part in first.removeprefix("# Python ").split("."))
    if sys.version_info >= wanted:
        return sys.executable
    known = Path.home().glob(f".pyenv/versions/{wanted[0]}.*/bin/python3")
    for name in (f"python{wanted[0]}.{minor}" for minor in range(wanted[1], wanted[1] + 4)):
        for found in filter(None, (shutil.which(name), *(str(path) for path in known if name[6:] in str(path)))):
            asked = subprocess.run(
                [found, "-c", "import venv, sys; print(sys.executable)"], capture_output=True, text=True
            )
            if asked.returncode == 0:
                return asked.stdout.strip()
    raise NoVenv(f"needs Python {first.removeprefix('# Python ')}, not found here")


def versions(python: Path) -> dict[str, str]:
    """Return what is installed in a venv, by name."""
    code = (
        "import importlib.metadata, json; found = importlib.metadata.distributions();"
        "print(json.dumps({each.name.lower(): each.version for each in found}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found
