"""Charts: bars, lines and tables show the numbers they are given."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from django_delayq._version import __version__
from django_delayq.admin.charts.drawing import HEIGHT, WIDTH, Chart, Series
from django_delayq.templatetags.delayq import grouped
from tests.admin.conftest import page
from tests.admin.reports import tell
from tests.shard_apis import DAY, HOUR, ShardApis

LABELS = ["one", "two", "three", "four"]
HEADS = ["Number", "Done", "Failed"]


def bars_of(*values: tuple[int, ...], **options: Any) -> Any:
    """Return a chart of stacked bars."""
    return chart_of(
        *(Series(kind, kind, each) for kind, each in zip(("done", "failed"), values, strict=False)), **options
    )


def chart_of(*series: Series, **options: Any) -> Chart:
    """Return a chart of series of four values."""
    given: dict[str, Any] = {"headers": HEADS, "labels": LABELS, "axis": LABELS, "text": grouped, **options}
    return Chart(name="test", title="Test", summary="All of it.", series=series, **given)


def boxes(chart: Any, kind: str = "done") -> list[tuple[int, ...]]:
    """Return left, top, width and height of a series' bars."""
    (path,) = [path for each, path in chart.paths if each == kind]
    found = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z", path)
    assert "".join("M{} {}h{}v{}h-{}z".format(*numbers) for numbers in found) == path
    assert all(there == back for _, _, there, _, back in found)
    return [tuple(map(int, numbers[:4])) for numbers in found]


def test_bars_are_as_high_as_their_numbers() -> None:
    chart = bars_of((10, 5, 0, 20))
    assert [height for *_, height in boxes(chart)] == [HEIGHT // 2, HEIGHT // 4, HEIGHT]
    assert all(top + height == HEIGHT for _, top, _, height in boxes(chart))
    assert chart.top == "20"


def test_bars_stand_in_their_columns() -> None:
    chart = bars_of((10, 5, 0, 20))
    wide = WIDTH // 4
    for at, (left, _, width, _) in zip((0, 1, 3), boxes(chart), strict=True):
        assert at * wide < left < left + width < (at + 1) * wide


def test_parts_of_a_bar_are_stacked() -> None:
    chart = bars_of((10, 0, 0, 0), (10, 5, 0, 0))
    ((_, below, _, _),) = boxes(chart, "done")
    (_, above, _, height), _ = boxes(chart, "failed")
    assert (above, above + height) == (0, below)


def test_one_among_a_million_is_visible() -> None:
    chart = bars_of((1_000_000, 1, 0, 0))
    assert [height > 0 for *_, height in boxes(chart)] == [True, True]


def test_no_bar_leaves_the_box() -> None:
    chart = bars_of((1_000_000, 1, 0, 0), (1, 1_000_000, 0, 0))
    assert all(top >= 0 for kind in ("done", "failed") for _, top, _, _ in boxes(chart, kind))


def test_columns_fill_the_width_without_a_gap() -> None:
    for count in (1, 7, 60, 61):
        chart = chart_of(Series("done", "", [1] * count), labels=["x"] * count, axis=[])
        edges = [(column.x, column.x + column.width) for column in chart.columns]
        assert edges[0][0] == 0
        assert edges[-1][1] == WIDTH
        assert all(a[1] == b[0] for a, b in zip(edges, edges[1:], strict=False))
        assert all(width > 0 for _, _, width, _ in boxes(chart))


def test_table_has_the_numbers_of_the_bars() -> None:
    chart = bars_of((1000, 5, 0, 7), (0, 1, 0, 2), urls=["/1", "/2", "/3", "/4"])
    assert [column.url for column in chart.columns] == ["/1", "/2", "", "/4"]
    assert chart.rows == [
        ("one", "/1", ["1,000", "0"]),
        ("two", "/2", ["5", "1"]),
        ("three", "/3", ["0", "0"]),
        ("four", "/4", ["7", "2"]),
    ]
    assert [column.label for column in chart.columns] == [
        "one: 1,000 done",
        "two: 5 done, 1 failed",
        "three: 0",
        "four: 7 done, 2 failed",
    ]


def test_line_breaks_where_there_is_no_value() -> None:
    chart = chart_of(Series("most", "p95", [10, None, 20, 0]), is_line=True)
    assert [path for _, path in chart.paths] == ["M0 51H250M500 2H750L750 98H1000"]
    assert [cells for _, _, cells in chart.rows] == [["10"], ["–"], ["20"], ["0"]]


def test_nothing_at_all_can_be_bars_of() -> None:
    chart = bars_of((0, 0, 0, 0))
    assert chart.paths == []
    assert chart.top == ""
    chart = chart_of(Series("most", "p95", [None] * 4), is_line=True)
    assert [path for _, path in chart.paths] == [""]


@pytest.mark.parametrize("language", ["de", "fr", "ar"])
def test_coordinates_are_not_localized(language: str, browser: Client, stock: ShardApis, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    tell(stock, done=2_000, queue="mail")
    with translation.override(language):
        text = browser.get(page("overview"), headers={"Accept-Language": language}).content.decode()
    assert f'lang="{language}"' in text
    for svg in re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL):
        numbers = re.findall(r'\s(?:x|y|width|height)="([^"]*)"', svg)
        assert len(numbers) > 20
        assert all(re.fullmatch("[0-9]+", number) for number in numbers)
        assert all(re.fullmatch("[MLHhv0-9 z-]*", path) for path in re.findall(r'\sd="([^"]*)"', svg))


def test_every_chart_has_a_description_and_a_table(browser: Client, stock: ShardApis) -> None:
    tell(stock, done=3, retried=2, dead=1, queue="mail")
    stock.add(delay=60_000_000)
    pages = [browser.get(page("overview", charts=tab)).content.decode() for tab in ("", "delay", "run")]
    figures = [figure for text in pages for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL)]
    assert len(figures) == 9
    for figure in figures:
        assert re.search(r'role="(img|group)"', figure)
        name = re.search(r'aria-labelledby="([^"]*)"', figure)
        assert name
        assert f'<title id="{name[1]}">' in figure
        assert "<desc id=" in figure
        assert "<details" in figure
        assert "<caption" in figure
    for text in pages:
        ids = re.findall(r'\sid="([^"]*)"', text)
        assert len(ids) == len(set(ids))


def test_a_mark_is_a_line_with_a_sentence(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    tell(stock, done=3)
    now_us = stock.clock.now_us
    begun: dict[str, int] = {"1.0": now_us - 2 * DAY, "<b>2.0": now_us - HOUR // 2, "9.0": now_us + HOUR}
    stock.client.hset(stock.keys("releases"), mapping=begun)
    stock.client.hdel(stock.keys("releases"), __version__)
    for query, marked in (({}, ["2.0"]), ({"span": "week"}, ["1.0", "2.0"])):
        html = browser.get(page("overview", **query)).content.decode()
        figure = html.split('id="delayq-chart-finished"')[1].split("</figure>")[0]
        assert len(re.findall(r'class="delayq-mark" d="M\d+ 0v100"', figure)) == len(marked)
        shown = re.findall(r"Release (?:&lt;b&gt;)?([\d.]+) began at", figure)
        assert shown == marked * 2, "beside the line, and in the table"
        assert "delayq-mark" not in html.split('id="delayq-chart-coming"')[1].split("</figure>")[0]
