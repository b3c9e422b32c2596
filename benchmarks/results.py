"""Results: the records of one run, as JSON, and the median, minimum and maximum of each figure."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
OURS, FLOOR = "delayq", "floor"
FELL_BEHIND = "a job enqueued after these did not run within a minute"


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all rounds."""

    median: float
    minimum: float
    maximum: float
    configuration: str


def is_rate(figure: str) -> bool:
    """Return whether a higher value of the figure is better."""
    return figure.startswith("rate")


class Results:
    """The content of a results file: the machine, the systems, and one record for each measurement."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.records: list[dict[str, Any]] = content["records"]
        self.systems: dict[str, dict[str, Any]] = content["systems"]

    @classmethod
    def empty(cls, machine: dict[str, Any], sizes: dict[str, Any]) -> "Results":
        """Return the results of a run that has measured nothing yet."""
        return cls({"machine": machine, "sizes": sizes, "systems": {}, "records": []})

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Read a results file."""
        return cls(json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write the results file. A run does so after each measurement, so that an interrupted run is not lost."""
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(self.content, indent=1))

    def configurations(self, scenario: str, system: str) -> list[str]:
        """Return the measured configurations, in the order of the adapter."""
        seen = {record["configuration"] for record in self._of(scenario, system)}
        return [name for name in self.systems[system]["configurations"] if name in seen] if seen else []

    def spread(self, scenario: str, system: str, figure: str, configuration: str | None = None) -> Spread | None:
        """Return a figure of one configuration, or of the best one; None if it was not measured.

        The best has the highest rate, or the lowest value of any other figure.
        """
        if configuration is None:
            found = [self.spread(scenario, system, figure, name) for name in self.configurations(scenario, system)]
            sign = -1 if is_rate(figure) else 1
            return min((spread for spread in found if spread), key=lambda spread: sign * spread.median, default=None)
        records = self._of(scenario, system)
        values = [
            r["figures"][figure] for r in records if r["configuration"] == configuration and figure in r["figures"]
        ]
        if not values:
            return None
        return Spread(statistics.median(values), min(values), max(values), configuration)

    def tried(self, scenario: str, system: str) -> bool:
        """Return whether the system was measured in a scenario, or could not be."""
        return bool(self._of(scenario, system))

    def reason(self, scenario: str, system: str) -> str:
        """Return why a system has no figure in a scenario."""
        reasons = [record["reason"] for record in self._of(scenario, system) if record.get("reason")]
        # Only `waiting` measures two parts: the second may fail after the first has a figure.
        fallback = FELL_BEHIND if any(record["figures"] for record in self._of(scenario, system)) else "not measured"
        return str(self.systems[system]["unsupported"].get(scenario) or (reasons[-1] if reasons else fallback))

    def peers(self) -> list[str]:
        """Return all systems but this project and the floor."""
        return [system for system in self.systems if system not in (OURS, FLOOR)]

    def best_peer(self, scenario: str, figure: str, configuration: str | None = None) -> tuple[str, Spread] | None:
        """Return the peer with the best median, of all configurations or of one, and its spread."""
        found = [
            (peer, spread) for peer in self.peers() if (spread := self.spread(scenario, peer, figure, configuration))
        ]
        sign = -1 if is_rate(figure) else 1
        return min(found, key=lambda pair: sign * pair[1].median, default=None)

    def _of(self, scenario: str, system: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r["scenario"] == scenario and r["system"] == system]
