"""Choice: which systems a run measures in which scenario, with which configurations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.results import FLOOR, OURS, Results
from benchmarks.scenarios import SCENARIOS

PEERS = ("celery", "rq", "huey", "dramatiq", "django_q2", "arq", "saq", "taskiq", "django_tasks_redis")
#: For each scenario the peers that came near its best when all were measured; what a run of minutes takes.
CONTENDERS: dict[str, Sequence[str]] = {
    "enqueue": (FLOOR, "huey", "dramatiq", "django_q2", "celery"),
    "bulk": (FLOOR, "rq", "saq"),
    "drain": (FLOOR, "huey", "dramatiq", "django_q2", "taskiq"),
    "drain_two": ("huey", "dramatiq", "django_q2", "taskiq"),
    "trips": (FLOOR, "huey", "taskiq", "celery"),
    "lateness": ("celery",),
    "instant": ("celery", "huey"),
    "idle": ("celery", "huey"),
    "waiting": ("huey",),
    "waits_threads": ("huey", "dramatiq"),
    "waits_asyncio": ("saq", "taskiq"),
}
OURS_ALONE = ("account", "growth")
#: A configuration so much slower than its system's best is not repeated.
SLOWER = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is measured; `contenders`: only those; `tuned`: only the configuration that is there for speed."""

    systems: Sequence[str] = (OURS, FLOOR, *PEERS)
    scenarios: Sequence[str] = tuple(SCENARIOS)
    contenders: bool = False
    tuned: bool = False

    def turns(self, results: Results, scenario: str) -> Iterator[tuple[str, str]]:
        """Yield who is measured, with which configuration: one after the other, so that noise meets all alike."""
        chosen = self.chosen(scenario)
        for turn in range(4):
            for system in chosen:
                if scenario not in results.systems[system]["cannot"]:
                    for configuration in self._configurations(results, scenario, system)[turn : turn + 1]:
                        yield system, configuration

    def chosen(self, scenario: str) -> list[str]:
        """Return the systems of one scenario."""
        if scenario in OURS_ALONE:
            return [OURS]
        wanted = (OURS, *CONTENDERS[scenario]) if self.contenders else self.systems
        return [system for system in self.systems if system in wanted]

    def _configurations(self, results: Results, scenario: str, system: str) -> list[str]:
        known = results.systems[system]
        kind, _, pool = scenario.partition("_")
        if kind == "waits":
            return [known["waits"][pool]] if pool in known["waits"] else []
        plain = ("default", "tuned")
        fast = [name for name in known["configurations"] if name in plain or name not in known["waits"].values()]
        if self.tuned and "tuned" in fast:
            fast.remove("default")
        if scenario == "drain":
            return _worth(results, scenario, system, fast)
        if scenario == "drain_two":
            best = results.spread("drain", system, "rate")
            return [best.configuration] if best else fast[-1:]
        both = [name for name in fast if name in plain]
        if scenario in ("enqueue", "bulk"):
            return _worth(results, scenario, system, both)
        # What runs no-op jobs fastest need not be what is most punctual, and surely not with all due at once.
        if scenario in ("lateness", "instant"):
            both = list(dict.fromkeys([*both, known["waits"].get("threads", both[-1])]))
        # Bytes hardly depend on it, and the slowest take minutes to store them.
        return both[-1:] if scenario == "waiting" else both


def _worth(results: Results, scenario: str, system: str, names: list[str]) -> list[str]:
    """Return the configurations that another round could show as the best, or that were never measured."""
    best = results.spread(scenario, system, "rate")
    if best is None:
        return names
    known = {name: results.spread(scenario, system, "rate", name) for name in names}
    return [name for name, spread in known.items() if not spread or spread.median > SLOWER * best.median]
