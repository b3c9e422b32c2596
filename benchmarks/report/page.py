"""The page docs/reference/benchmarks.md: the text between its marks, and its charts, come from a run."""

import re
from collections.abc import Sequence

from benchmarks import growth
from benchmarks.report.charts import CHARTS, bars, links
from benchmarks.report.kinds import KINDS, django_configurations, kinds
from benchmarks.report.tables import TABLES, account, configurations, headline, ours, systems
from benchmarks.results import Results
from benchmarks.sizes import WHOLE
from benchmarks.venvs import ROOT

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
_MARKED = re.compile(r"(<!-- figures: (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_page(results: Results, *, only: Sequence[str] | None = None) -> None:
    """Rewrite the marked parts of the page, and its charts; with `only`, just these parts and no chart."""
    PAGE.write_text(fill_in(PAGE.read_text(), results, only=only))
    if only:
        return
    IMAGES.mkdir(exist_ok=True)
    for name in CHARTS:
        if drawn := bars(results, name):
            (IMAGES / name).write_text(drawn)
    print(f"wrote {PAGE.relative_to(ROOT)}")


def fill_in(text: str, results: Results, *, only: Sequence[str] | None = None) -> str:
    """Return the page with new text between its marks, or between those that `only` names."""

    def replacement(mark: re.Match[str]) -> str:
        if only and mark["name"] not in only:
            return mark[0]
        return f"{mark[1]}{_note(results) if only else ''}{marked_part(mark['name'], results)}\n{mark[3]}"

    return _MARKED.sub(replacement, text)


def marked_part(name: str, results: Results) -> str:
    """Return the text for a mark."""
    if name == "machine":
        return _machine(results)
    if name == "headline":
        return headline(results)
    if name == "account":
        return account(results)
    if name == "ours":
        return ours(results)
    if name == "configurations":
        return configurations(results)
    if name == "growth":
        return growth.table(results)
    if name == "Django configurations":
        return django_configurations(results)
    if name in KINDS:
        return kinds(results, name)
    return links(results, name) + systems(results, name)


def show(results: Results) -> None:
    """Print the tables of a run."""
    for name in ("machine", "headline", "account"):
        print(f"\n{marked_part(name, results)}")
    for title, columns in KINDS.items():
        if any(results.tried(scenario, system) for _, scenario, *_ in columns for system in results.systems):
            print(f"\n{title}\n{kinds(results, title)}")
    for title in TABLES:
        if any(
            results.configurations(scenario, system) for _, scenario, *_ in TABLES[title] for system in results.systems
        ):
            print(f"\n{title}\n{systems(results, title)}")


def _machine(results: Results) -> str:
    facts = results.content["machine"]
    return (
        f"Measured {facts['began']} UTC on {facts['processor']}, {facts['cores']} cores, {facts['system']}, "
        f"Python {facts['python']}, {facts['server']} beside the workers, load {facts['load_before']} before; "
        f"a wait of 5 ms ended {facts['timer_ms']} ms late (select). Medians; where a figure was measured in several "
        f"rounds, with the least and the greatest. {_pinned(facts.get('pinned', []))}"
    )


def _pinned(cpus: Sequence[int]) -> str:
    if not cpus:
        return "No process was pinned to a CPU."
    names = ", ".join(str(cpu) for cpu in cpus)
    return f"The servers, the workers and the producer were all pinned to CPU {names}."


def _note(results: Results) -> str:
    """Return the line above figures that are not from the run of the rest of the page."""
    facts, sizes = results.content["machine"], results.content["sizes"]
    size = "" if sizes["jobs"] == WHOLE.jobs else " in small sizes, too small to compare"
    rounds = f"{sizes['rounds']} round{'s' if sizes['rounds'] > 1 else ''}"
    return f"*A run of its own{size}: {facts['began']} UTC, {rounds}, load {facts['load_before']} before.*\n\n"
