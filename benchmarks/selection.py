"""Selection: the systems and configurations that a run measures in each scenario."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.django_jobs.systems import SYSTEMS
from benchmarks.results import FLOOR, OURS, Results
from benchmarks.scenarios import SCENARIOS

PEERS = ("celery", "rq", "huey", "dramatiq", "django_q2", "arq", "saq", "taskiq", "django_tasks_redis")
#: Scenario -> the peers close to the best one when all were measured. Short runs measure only these.
CONTENDERS: dict[str, Sequence[str]] = {
    "enqueue": (FLOOR, "huey", "dramatiq", "django_q2", "celery"),
    "bulk": (FLOOR, "rq", "saq"),
    "drain": (FLOOR, "huey", "dramatiq", "django_q2", "taskiq"),
    "drain_two": ("huey", "dramatiq", "django_q2", "taskiq"),
    "trips": (FLOOR, "huey", "taskiq", "celery"),
    "lateness": (FLOOR, "celery"),
    "instant": ("celery", "huey"),
    "idle": ("celery", "huey"),
    "waiting": ("huey",),
    "waits_threads": ("huey", "dramatiq"),
    "waits_asyncio": ("saq", "taskiq"),
}
#: Scenario -> the only systems that it measures.
ONLY: dict[str, Sequence[str]] = {
    "account": (OURS,),
    "growth": (OURS,),
    "drain_write": (OURS, "celery", "rq", "huey", "dramatiq", "django_q2"),
    "sleeps": (OURS, "dramatiq"),
    "django_run": tuple(SYSTEMS),
    "django_requests": tuple(SYSTEMS),
}
#: The scenarios that compare a new user's configuration with the tuned one, even if a run measures only tuned ones.
BOTH_KINDS = ("django_run", "django_requests")
#: Configurations below this share of their system's best rate are not measured again.
SLOWER = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to measure. `contenders`: only the peers in CONTENDERS; `tuned`: no default one beside a tuned one."""

    systems: Sequence[str] = (OURS, FLOOR, *PEERS)
    scenarios: Sequence[str] = tuple(SCENARIOS)
    contenders: bool = False
    tuned: bool = False

    def measurements(self, results: Results, scenario: str) -> Iterator[tuple[str, str]]:
        """Yield systems and configurations. Systems alternate, so that the machine's noise affects all alike."""
        systems = self.systems_of(scenario)
        for turn in range(4):
            for system in systems:
                if scenario not in results.systems[system]["unsupported"]:
                    for configuration in self._configurations(results, scenario, system)[turn : turn + 1]:
                        yield system, configuration

    def systems_of(self, scenario: str) -> list[str]:
        """Return the systems to measure in a scenario."""
        if scenario in ONLY:
            return [system for system in self.systems if system in ONLY[scenario]]
        wanted = (OURS, *CONTENDERS[scenario]) if self.contenders else self.systems
        return [system for system in self.systems if system in wanted]

    def _configurations(self, results: Results, scenario: str, system: str) -> list[str]:
        known = results.systems[system]
        kind, _, pool = scenario.partition("_")
        if kind == "waits":
            return [known["wait_configurations"][pool]] if pool in known["wait_configurations"] else []
        plain = ("default", "tuned")
        if scenario in BOTH_KINDS:
            return [*plain]
        fast = [
            name
            for name in known["configurations"]
            if name in plain or name not in known["wait_configurations"].values()
        ]
        if self.tuned and "tuned" in fast:
            fast.remove("default")
        if scenario in ("drain", "drain_write"):
            return _worth_repeating(results, scenario, system, fast)
        if scenario == "drain_two":
            best = results.spread("drain", system, "rate")
            return [best.configuration] if best else fast[-1:]
        both = [name for name in fast if name in plain]
        if scenario in ("enqueue", "bulk"):
            return _worth_repeating(results, scenario, system, both)
        # The fastest configuration for no-op jobs is not always the most punctual one, least of all for one instant.
        if scenario in ("lateness", "instant"):
            both = list(dict.fromkeys([*both, known["wait_configurations"].get("threads", both[-1])]))
        # The configuration hardly changes the bytes, and the slowest systems take minutes to store the jobs.
        return both[-1:] if scenario in ("waiting", "account") else both


def _worth_repeating(results: Results, scenario: str, system: str, names: list[str]) -> list[str]:
    """Return the configurations that were never measured, or that may be the best in another round."""
    best = results.spread(scenario, system, "rate")
    if best is None:
        return names
    known = {name: results.spread(scenario, system, "rate", name) for name in names}
    return [name for name, spread in known.items() if not spread or spread.median > SLOWER * best.median]
