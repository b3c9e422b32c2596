"""Kinds: tables with a row for each system and columns for a new user's configuration and for the tuned one."""

from collections.abc import Callable, Sequence

from benchmarks.django_jobs.systems import SYSTEMS
from benchmarks.report.tables import dash, markdown, ms, rate, whole
from benchmarks.results import FLOOR, Results

#: The configuration of a new user. The tuned one is the best of all that were measured.
NEW_USER, TUNED = "default", None
Column = tuple[str, str, str, str | None, Callable[[float], str]]

#: Title of a table -> its columns: heading, scenario, figure, configuration, format.
KINDS: dict[str, Sequence[Column]] = {
    "New user and tuned": (
        ("run, new user, jobs/s", "drain", "rate", NEW_USER, rate),
        ("run, tuned, jobs/s", "drain", "rate", TUNED, rate),
        ("enqueue, new user, jobs/s", "enqueue", "rate", NEW_USER, rate),
        ("enqueue, tuned, jobs/s", "enqueue", "rate", TUNED, rate),
        ("enqueue to start, new user: p50", "trips", "p50_ms", NEW_USER, ms),
        ("enqueue to start, tuned: p50", "trips", "p50_ms", TUNED, ms),
    ),
    "What a Django project runs": (
        ("jobs/s, new user", "django_run", "rate", NEW_USER, rate),
        ("jobs/s, tuned", "django_run", "rate", TUNED, rate),
    ),
    "Enqueueing in a view": (
        ("requests/s, new user", "django_requests", "rate", NEW_USER, rate),
        ("requests/s, tuned", "django_requests", "rate", TUNED, rate),
        ("the enqueue adds, µs, new user", "django_requests", "enqueue_us", NEW_USER, whole),
        ("the enqueue adds, µs, tuned", "django_requests", "enqueue_us", TUNED, whole),
    ),
}
#: Title -> heading and content of a first column beside the name of the system.
_FACTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "What a Django project runs": ("8 at once are", lambda system: SYSTEMS[system].at_once),
    "Enqueueing in a view": ("enqueued by", lambda system: SYSTEMS[system].on_commit),
}


def kinds(results: Results, title: str) -> str:
    """Return a table with a row for each measured system; "–" with a note for a missing figure."""
    columns, rows, notes = KINDS[title], [], []
    heading, fact = _FACTS.get(title, ("", None))
    scenarios = {scenario for _, scenario, *_ in columns}
    for system, known in results.systems.items():
        if system == FLOOR or not any(results.tried(scenario, system) for scenario in scenarios):
            continue
        cells = []
        for _, scenario, figure, configuration, show in columns:
            spread = results.spread(scenario, system, figure, configuration)
            cells.append(show(spread.median) if spread else dash(results, scenario, system, configuration or "", notes))
        rows.append([known["name"], *([fact(system)] if fact else []), *cells])
    listed = "".join(f"\n\n<sup>{at}</sup> {note}" for at, note in enumerate(notes, 1))
    return markdown(["", *([heading] if fact else []), *(name for name, *_ in columns)], rows) + listed


def django_configurations(results: Results) -> str:
    """Return what a new user's Django project has in each system, and the tuned one."""
    rows = [
        [results.systems[system]["name"], known.new_user, known.tuned]
        for system, known in SYSTEMS.items()
        if system in results.systems
    ]
    return markdown(["", "new user", "tuned"], rows)
