"""Mutation run: plant each known bug into a copy of the package, and show which test detects it.

`python -m tests.mutation [WORDS]` plants only the bugs whose name contains WORDS. The state machine must detect bugs of
the store's transitions; all other bugs name the tests of which at least one must fail. Exits with 1 if a bug survives,
or if no name contains WORDS.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from django_delayq.testing.local_redis import LocalRedisServer
from tests.mutation import MUTATIONS
from tests.stateful.mutations.engine import MORE
from tests.stateful.mutations.first import FIRST, PROMISES
from tests.stateful.mutations.limits import LIMITS
from tests.stateful.mutations.mutation import Mutation
from tests.stateful.mutations.plant import ROOT, plant
from tests.stateful.mutations.process import DETECTED
from tests.stateful.mutations.schedule_runs import FIRST_OF_RUNS, RUNS
from tests.stateful.mutations.schedules import FIRST_OF_SCHEDULES, SCHEDULES
from tests.stateful.mutations.tenants import TENANTS
from tests.stateful.mutations.throttles import THROTTLES

OF_SCHEDULES = [*FIRST_OF_SCHEDULES, *FIRST_OF_RUNS, *SCHEDULES, *RUNS]
#: Most examples of the state machine, and most seconds, within which a bug must be detected.
EXAMPLES, PATIENCE = 200, 600
#: The exit code of pytest if tests failed. Other codes mean an error of pytest or an empty selection.
FAILED = 1


def run_state_machine(bug: Mutation, url: str) -> str:
    """Return "the state machine" if it detects the bug, else an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        machine = "limits" if bug in LIMITS else "schedules" if bug in OF_SCHEDULES else ""
        command = [sys.executable, "-m", "tests.stateful.mutations.process", folder, url, str(EXAMPLES), machine]
        ended = run(command, plant(bug, Path(folder)), folder)
    return "the state machine" if ended.returncode == DETECTED else ""


def run_tests(bug: Mutation, tests: tuple[str, ...]) -> str:
    """Return the first test that fails with the bug, or an empty string if the bug survives."""
    with tempfile.TemporaryDirectory() as folder:
        environment = plant(bug, Path(folder))
        options = [
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "--rootdir",
            str(ROOT),
            "-o",
            "pythonpath=",
        ]
        ended = run([sys.executable, "-m", "pytest", *options, *tests], environment, str(ROOT))
    failed = [line.split(" ")[1] for line in ended.stdout.splitlines() if line.startswith("FAILED ")]
    return failed[0] if ended.returncode == FAILED and failed else ""


def run(command: list[str], environment: dict[str, str], folder: str) -> subprocess.CompletedProcess[str]:
    """Run a command for at most PATIENCE seconds.

    A timeout is no failure of a test, so a bug that hangs the tests counts as survived.
    """
    try:
        return subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, -1, str(error.stdout), str(error.stderr))


def judge(bug: Mutation, tests: tuple[str, ...]) -> bool:
    """Print one line for a bug, and return whether it is detected."""
    began = time.monotonic()
    if tests:
        detector = run_tests(bug, tests)
    else:
        with LocalRedisServer() as server:
            detector = run_state_machine(bug, server.url)
    outcome = f"detected by {detector}" if detector else "SURVIVED"
    print(f"{time.monotonic() - began:5.0f} s  {bug.name}: {outcome}", flush=True)
    return bool(detector)


def main(words: str = "") -> int:
    """Run the bugs, as many at once as there are CPUs, and return the exit code."""
    known = [
        *((bug, ()) for bug in (*FIRST, *PROMISES, *MORE, *TENANTS, *THROTTLES, *LIMITS, *OF_SCHEDULES)),
        *MUTATIONS.items(),
    ]
    bugs = [(bug, tests) for bug, tests in known if words in bug.name]
    if not bugs:
        print(f"No bug has {words!r} in its name; tests/mutation/ and tests/stateful/mutations.py have the names.")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        detected = list(threads.map(lambda each: judge(*each), bugs))
    print(f"{sum(detected)} of {len(detected)} bugs detected")
    return 0 if all(detected) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
