"""The page docs/benchmarks.md: the text between its marks, and its charts, come from a run."""

import re

from benchmarks import growth
from benchmarks.report.charts import CHARTS, bars, links
from benchmarks.report.tables import TABLES, account, configurations, headline, ours, systems
from benchmarks.results import Results
from benchmarks.venvs import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
_MARKED = re.compile(r"(<!-- figures: (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_page(results: Results) -> None:
    """Rewrite the marked parts of the page, and its charts."""
    text = PAGE.read_text()
    PAGE.write_text(fill_in(text, results))
    IMAGES.mkdir(exist_ok=True)
    for name in CHARTS:
        if drawn := bars(results, name):
            (IMAGES / name).write_text(drawn)
    print(f"wrote {PAGE.relative_to(ROOT)}")


def fill_in(text: str, results: Results) -> str:
    """Return the page with new text between its marks."""
    return _MARKED.sub(lambda mark: f"{mark[1]}{marked_part(mark['name'], results)}\n{mark[3]}", text)


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
    return links(results, name) + systems(results, name)


def show(results: Results) -> None:
    """Print the tables of a run."""
    for name in ("machine", "headline", "account"):
        print(f"\n{marked_part(name, results)}")
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
        "rounds, with the least and the greatest."
    )
