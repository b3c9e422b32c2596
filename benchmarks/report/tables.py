"""Tables: the results of a run as Markdown. Every number comes from the results file."""

from collections.abc import Callable, Sequence

from benchmarks.results import FLOOR, OURS, Results, Spread, is_rate

Column = tuple[str, str, str, Callable[[float], str]]


def rate(value: float) -> str:
    """Format jobs a second, to three digits."""
    return f"{round(value, 3 - len(str(int(value)))):,.0f}" if value >= 1_000 else f"{value:.0f}"


def ms(value: float) -> str:
    """Format milliseconds."""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def number(value: float) -> str:
    """Format a number: below 10 with two decimals."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def whole(value: float) -> str:
    """Format a whole number."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """Format a share of one core."""
    return f"{100 * value:.2f} %"


#: Title of a table -> its columns: heading, scenario, figure, format.
TABLES: dict[str, Sequence[Column]] = {
    "Running": (
        ("one worker process, jobs/s", "drain", "rate", rate),
        ("the same, each job makes a system call", "drain_write", "rate", rate),
        ("two worker processes, jobs/s", "drain_two", "rate", rate),
    ),
    "Enqueueing": (
        ("one at a time, jobs/s", "enqueue", "rate", rate),
        ("in bulk, jobs/s", "bulk", "rate", rate),
    ),
    "On time": (
        ("spread: p50", "lateness", "p50_ms", ms),
        ("spread: p99", "lateness", "p99_ms", ms),
        ("early", "lateness", "early", whole),
        ("one instant: last start", "instant", "last_ms", ms),
        ("early", "instant", "early", whole),
    ),
    "Idle": (
        ("enqueue to start: p50", "trips", "p50_ms", ms),
        ("p99", "trips", "p99_ms", ms),
        ("requests/s", "idle", "requests", number),
        ("CPU of the workers", "idle", "workers_cpu", share),
        ("CPU of Redis", "idle", "redis_cpu", share),
        ("processes", "idle", "processes", whole),
    ),
    "Waiting": (
        ("jobs waiting", "waiting", "jobs", whole),
        ("bytes each", "waiting", "bytes", whole),
        ("requests/s", "waiting", "requests", number),
        ("CPU of the workers", "waiting", "workers_cpu", share),
        ("CPU of Redis", "waiting", "redis_cpu", share),
        ("MiB of the workers", "waiting", "workers_mib", whole),
    ),
    "Jobs that wait 10 ms": (
        ("16 threads, jobs/s", "waits_threads", "rate", rate),
        ("100 coroutines, jobs/s", "waits_asyncio", "rate", rate),
    ),
    "Jobs that wait, 8 threads": (
        ("0 ms, jobs/s", "sleeps", "rate_noop", rate),
        ("0.1 ms, jobs/s", "sleeps", "rate_sleep_100us", rate),
        ("1 ms, jobs/s", "sleeps", "rate_sleep_1ms", rate),
        ("10 ms, jobs/s", "sleeps", "rate_wait", rate),
    ),
}

#: Title of a table -> configuration of the floor -> what it does there, for readers of a table that has its row.
FLOOR_ROWS: dict[str, dict[str, str]] = {
    "On time": {
        "default": (
            "Bare redis-py is a loop here: a script takes what is due, and the loop runs it and sleeps until the next "
            "due time."
        ),
        "apart": (
            "*Apart*, one process pushes what is due, and another pops and runs it, as a dispatcher and a worker do."
        ),
    },
}

#: The tables without a row for a system that was not meant to be measured.
FEW = ("Jobs that wait, 8 threads",)

#: The headline table: label, scenario, figure, configuration (None is the best one).
HEADLINE = (
    ("run, one worker process", "drain", "rate", None),
    ("run, one worker process, new user", "drain", "rate", "default"),
    ("run jobs of one system call", "drain_write", "rate", None),
    ("run jobs of one system call, new user", "drain_write", "rate", "default"),
    ("run, two worker processes", "drain_two", "rate", None),
    ("run jobs of a Django project", "django_run", "rate", None),
    ("run jobs of a Django project, new user", "django_run", "rate", "default"),
    ("enqueue one at a time", "enqueue", "rate", None),
    ("enqueue in bulk", "bulk", "rate", None),
    ("enqueue in bulk, new user", "bulk", "rate", "default"),
    ("requests a second that enqueue at the commit", "django_requests", "rate", None),
    ("start − due, spread: p50", "lateness", "p50_ms", None),
    ("start − due, spread: p99", "lateness", "p99_ms", None),
    ("all due at one instant: last start", "instant", "last_ms", None),
    ("all due at one instant: last start, new user", "instant", "last_ms", "default"),
    ("enqueue to start, idle: p50", "trips", "p50_ms", None),
    ("requests a second, idle", "idle", "requests", None),
    ("bytes of a waiting job", "waiting", "bytes", None),
    ("0.1 ms jobs, 8 threads", "sleeps", "rate_sleep_100us", None),
    ("1 ms jobs, 8 threads", "sleeps", "rate_sleep_1ms", None),
    ("10 ms jobs, 16 threads", "waits_threads", "rate", None),
    ("10 ms jobs, 100 coroutines", "waits_asyncio", "rate", None),
)


def headline(results: Results) -> str:
    """Return our figures beside the best peer's, and the rows in which a peer is better, worst first.

    The ratio is above 1 if ours is better.
    """
    rows, behind = [], []
    for what, scenario, figure, configuration in HEADLINE:
        ours = results.spread(scenario, OURS, figure, configuration)
        best = results.best_peer(scenario, figure, configuration)
        if ours is None or best is None:
            continue
        peer, theirs = best
        show = _show(scenario, figure)
        low, high = (theirs.median, ours.median) if is_rate(figure) else (ours.median, theirs.median)
        ratio = f"**{high / low:.2f} ×**" if low else "–"
        name = results.systems[peer]["name"]
        if high < low:
            behind.append((high / low, f"{what} ({high / low:.2f} ×, {name})"))
        floor = results.spread(scenario, FLOOR, figure) if configuration is None else None
        rows.append(
            [what, show(ours.median), f"{show(theirs.median)} ({name})", ratio, show(floor.median) if floor else "–"]
        )
    table = markdown(["", "django_delayq", "best of the others", "better by", "bare redis-py"], rows)
    worst = "; ".join(text for _, text in sorted(behind))
    return table + (f"\n\n**Another system is better, worst first: {worst}.**" if worst else "")


def systems(results: Results, title: str) -> str:
    """Return a table with a row for each system and configuration; "–" with a note for a missing figure."""
    columns, rows, notes, floors = TABLES[title], [], list[str](), list[str]()
    for system, known in results.systems.items():
        if title in FEW and not any(results.tried(scenario, system) for _, scenario, _, _ in columns):
            continue
        names = {name: None for _, scenario, _, _ in columns for name in results.configurations(scenario, system)}
        for name in names or [""]:
            # A row that is left out leaves no note.
            cells, noted = [], [*notes]
            for _, scenario, figure, show in columns:
                spread = results.spread(scenario, system, figure, name)
                cells.append(_cell(spread, show) if spread else dash(results, scenario, system, name, noted))
            label = known["name"] + (f", {name}" if name not in ("", "default") else "")
            # The floor is no queue: it has a row only in tables in which it has a figure.
            if set(cells) != {""} and (name or system != FLOOR):
                rows.append([label, *cells])
                notes = noted
                if system == FLOOR and name in FLOOR_ROWS.get(title, ()):
                    floors.append(FLOOR_ROWS[title][name])
    described = f"{' '.join(floors)}\n\n" if floors else ""
    listed = "".join(f"\n\n<sup>{at}</sup> {note}" for at, note in enumerate(notes, 1))
    return described + markdown(["", *(heading for heading, *_ in columns)], rows) + listed


def configurations(results: Results) -> str:
    """Return the table of versions and of what each configuration sets."""
    rows = []
    for known in results.systems.values():
        listed = "; ".join(f"*{name}*: {what}" for name, what in known["configurations"].items())
        wanted = known["name"].lower().replace("bare redis-py", "redis")
        version = known["versions"].get(wanted) or known["versions"].get(wanted.replace("_", "-"), "")
        rows.append([known["name"], version, listed])
    return markdown(["", "version", "configurations"], rows)


def account(results: Results) -> str:
    """Return the CPU time of a no-op job in Redis and workers, and the rate that it allows on four cores."""
    rows = []
    for system, known in results.systems.items():
        best = results.spread("drain", system, "rate")
        if best is None:
            continue
        redis = results.spread("drain", system, "redis_us", best.configuration)
        workers = results.spread("drain", system, "workers_us", best.configuration)
        if redis and workers:
            # Redis runs scripts on one core, so workers have the other three.
            four = min(1e6 / max(redis.median, 1e-9), 3e6 / max(workers.median, 1e-9))
            label = known["name"] + (f", {best.configuration}" if best.configuration != "default" else "")
            rows.append([label, f"{redis.median:.1f} µs", f"{workers.median:.1f} µs", rate(four)])
    return markdown(["", "Redis, a job", "worker processes, a job", "four cores would give, jobs/s"], rows)


def ours(results: Results) -> str:
    """Return how the CPU time of one of our no-op jobs is divided."""
    found = [results.spread("account", OURS, f"{part}_us") for part in ("redis", "client", "ours", "task")]
    headings = ["Redis", "redis-py and the socket", "our Python", "the task and its count"]
    return markdown(headings, [[f"{spread.median:.1f} µs" if spread else "–" for spread in found]])


def _show(scenario: str, figure: str) -> Callable[[float], str]:
    return next(
        (
            show
            for columns in TABLES.values()
            for _, where, what, show in columns
            if (where, what) == (scenario, figure)
        ),
        rate,
    )


def _cell(spread: Spread, show: Callable[[float], str]) -> str:
    median, minimum, maximum = show(spread.median), show(spread.minimum), show(spread.maximum)
    return median if minimum == maximum else f"{median} ({minimum}–{maximum})"


def dash(results: Results, scenario: str, system: str, configuration: str, notes: list[str]) -> str:
    """Return "–" with the number of its note, or nothing if another row of the system has the figure."""
    others = results.configurations(scenario, system)
    if configuration and others and configuration not in others:
        return ""
    reason = results.reason(scenario, system)
    if reason not in notes:
        notes.append(reason)
    return f"– <sup>{notes.index(reason) + 1}</sup>"


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
