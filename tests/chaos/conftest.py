"""What chaos tests share: a storm that prints its line whether or not it passes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.storm import Plan, Report, Storm, drawn_seed
from tests.processes import Processes


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line at once, also while pytest keeps what tests print."""
    terminal = request.config.pluginmanager.getplugin("terminalreporter")

    def tell(line: str) -> None:
        terminal.ensure_newline()
        terminal.write_line(line)

    return tell


@pytest.fixture
def storm(processes: Processes, server_program: Path, tell: Callable[[str], None]) -> Callable[[Plan], Report]:
    """Let a storm of this plan blow, and fail with its seed unless all promises were kept."""

    def blow(plan: Plan) -> Report:
        seed = drawn_seed()
        tell(f"storm {plan.name!r} begins: DELAYQ_CHAOS_SEED={seed}")
        try:
            report = Storm(plan, seed=seed, processes=processes, server_program=server_program).run()
        except BaseException as error:
            error.add_note(f"storm {plan.name!r}, seed {seed}")
            raise
        tell(str(report))
        assert not report.verdict.faults, report.told
        return report

    return blow
