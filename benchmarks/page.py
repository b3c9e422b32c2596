"""Page: docs/benchmarks.md, in which the harness writes what stands between the marks, and the charts beside it."""

import re

from benchmarks import growth
from benchmarks.charts import CHARTS, bars, links
from benchmarks.results import Results
from benchmarks.tables import TABLES, account, configured, headline, ours, systems
from benchmarks.venvs import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
_MARKED = re.compile(r"(<!-- figures: (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_page(results: Results) -> None:
    """Fill the page's marked places and draw the charts."""
    text = PAGE.read_text()
    PAGE.write_text(filled(text, results))
    IMAGES.mkdir(exist_ok=True)
    for name in CHARTS:
        if drawn := bars(results, name):
            (IMAGES / name).write_text(drawn)
    print(f"wrote {PAGE.relative_to(ROOT)}")


def filled(text: str, results: Results) -> str:
    """Return a page with what stands between its marks made anew."""
    return _MARKED.sub(lambda mark: f"{mark[1]}{part(mark['name'], results)}\n{mark[3]}", text)


def part(name: str, results: Results) -> str:
    """Return what belongs at a mark."""
    if name == "machine":
        return _machine(results)
    if name == "headline":
        return headline(results)
    if name == "account":
        return account(results)
    if name == "ours":
        return ours(results)
    if name == "configurations":
        return configured(results)
    if name == "growth":
        return growth.table(results)
    return links(results, name) + systems(results, name)


def show(results: Results) -> None:
    """Print the tables of a run."""
    for name in ("machine", "headline", "account"):
        print(f"\n{part(name, results)}")
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
