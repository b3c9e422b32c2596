"""Fixtures of the chaos tests: a seed and a fault run, which print their lines even if the test passes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.harness.fault_run import FaultRun, Plan, Report
from tests.chaos.harness.options import drawn_seed
from tests.subprocesses import Processes


@pytest.fixture
def print_now(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line at once, even while pytest captures the output of tests."""
    plugins = request.config.pluginmanager
    terminal, capture = plugins.getplugin("terminalreporter"), plugins.getplugin("capturemanager")

    def print_now(line: str) -> None:
        with capture.global_and_fixture_disabled():
            if terminal is None:
                # In a process of pytest-xdist, standard output is the channel to the main process.
                print(f"\n{line}", file=sys.stderr, flush=True)
                return
            terminal.ensure_newline()
            terminal.write_line(line)

    return print_now


@pytest.fixture
def seed(request: pytest.FixtureRequest, print_now: Callable[[str], None]) -> int:
    """The seed of the test's random numbers, printed at once and again if the test fails."""
    drawn = drawn_seed()
    print_now(f"{request.node.name}: DELAYQ_CHAOS_SEED={drawn}")
    request.node.add_report_section("setup", "seed", f"DELAYQ_CHAOS_SEED={drawn}")
    return drawn


@pytest.fixture
def run_faults(
    processes: Processes, server_program: Path, seed: int, print_now: Callable[[str], None]
) -> Callable[[Plan], Report]:
    """Run a plan of faults. The test fails, and shows the seed, if the checker finds a violation."""

    def run(plan: Plan) -> Report:
        try:
            report = FaultRun(plan, seed=seed, processes=processes, server_program=server_program).run()
        except BaseException as error:
            error.add_note(f"run_faults {plan.name!r}, seed {seed}")
            raise
        print_now(str(report))
        assert not report.result.violations, report.failure_text
        return report

    return run
