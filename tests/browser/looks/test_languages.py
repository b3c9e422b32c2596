"""The layout in other languages: long German words, Japanese, and texts from right to left."""

from collections.abc import Callable

import pytest

from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.pages import PAGES

WIDTHS = (1280, 375)
NAMES = (
    "overview",
    "scheduled",
    "failed",
    "failed, by error",
    "coming",
    "queues",
    "processes",
    "recurring",
    "schedule",
)
# Controls and labels that are cut off, or partly outside of the window.
CUT = """() => [...document.querySelectorAll("#delayq :is(button, .delayq-button, select, h1, h2, .delayq-tabs a)"
    + ", #delayq :is(.delayq-choices a, .delayq-zones a, .delayq-axis span, .delayq-axis-max, .delayq-tiles a)")]
    .filter((each) => each.checkVisibility() && !each.closest(".delayq-visually-hidden"))
    .filter((each) => {
        const box = each.getBoundingClientRect();
        const hides = getComputedStyle(each).overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1;
        return box.left < -1 || box.right > innerWidth + 1 || hides;
    }).map((each) => each.outerHTML.slice(0, 200))"""
TABLES = """() => [...document.querySelectorAll("#delayq .delayq-scroll:has(.delayq-cards)")]
    .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
    .map((each) => `${each.querySelector("caption").textContent}: ${each.scrollWidth} px in ${each.clientWidth}`)"""
# Neighbours below a chart that touch.
AXES = """() => [...document.querySelectorAll("#delayq .delayq-axis")].flatMap((axis) => {
    const shown = [...axis.children].filter((each) => each.textContent && each.offsetWidth).map((each) => {
        const range = document.createRange();
        range.selectNodeContents(each);
        return [each.textContent, range.getBoundingClientRect()];
    });
    return shown.slice(1).filter(([, box], at) => box.left < shown[at][1].right).map(([text]) => text);
})"""
# The places of the first letter and the last one of each text that is a number with a unit.
NUMBERS = """(selector) => [...document.querySelectorAll(selector)].flatMap((each) => [...each.childNodes])
    .filter((node) => node.nodeType === Node.TEXT_NODE && /^\\s*[+\\d][\\d.,]* ?[a-z/]+\\s*$/.test(node.data))
    .map((node) => {
        const place = (at) => {
            const range = document.createRange();
            range.setStart(node, at);
            range.setEnd(node, at + 1);
            return range.getBoundingClientRect().left;
        };
        const first = node.data.search(/\\S/), last = node.data.trimEnd().length - 1;
        return [node.data.trim(), place(first), place(last)];
    })"""


@pytest.mark.parametrize("name", [*NAMES, "job, failed"])
@pytest.mark.parametrize("language", ["de", "ja"])
def test_nothing_is_cut_off(language: str, name: str, new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    window = new_window(locale=language)
    window.open(PAGES[name](stock.fill(scheduled=60).ids))
    assert window.page.locator("html").get_attribute("lang") == language
    window.assert_tidy(*WIDTHS)
    for width in WIDTHS:
        window.page.set_viewport_size({"width": width, "height": 900})
        for script in (CUT, TABLES, AXES):
            assert window.page.evaluate(script) == [], width


@pytest.mark.parametrize("language", ["ar", "he"])
@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("overview", "#delayq td.num"),
        ("overview", "#delayq .delayq-aside"),
        ("overview", "#delayq .delayq-axis-max"),
        ("overview", "#delayq .delayq-choices a"),
        ("processes", "#delayq td.num"),
        ("job, failed", "#delayq td.num"),
        ("job, failed", "#delayq summary bdi"),
    ],
)
def test_a_unit_follows_its_number_from_right_to_left(
    language: str, name: str, selector: str, new_window: Callable[..., PageSession], stock: Fixtures
) -> None:
    window = new_window(locale=language)
    window.open(PAGES[name](stock.fill(scheduled=60).ids))
    assert window.page.evaluate("() => getComputedStyle(document.querySelector('#delayq')).direction") == "rtl"
    for width in WIDTHS:
        window.page.set_viewport_size({"width": width, "height": 900})
        found = window.page.evaluate(NUMBERS, selector)
        assert found
        assert [text for text, first, last in found if first >= last] == []


def test_columns_begin_at_the_right_and_charts_at_the_left(
    new_window: Callable[..., PageSession], stock: Fixtures
) -> None:
    window = new_window(locale="ar")
    window.open(PAGES["overview"](stock.fill(scheduled=60).ids))

    def left(selector: str) -> float:
        box = window.page.locator(selector).first.bounding_box()
        assert box is not None
        return box["x"]

    table = "#delayq .delayq-columns table thead"
    assert left(f"{table} th:first-child") > left(f"{table} th:last-child")
    assert left("#delayq .delayq-tiles li:first-child") > left("#delayq .delayq-tiles li:last-child")
    chart = "#delayq .delayq-hero"
    assert left(f"{chart} .delayq-axis span:first-child") < left(f"{chart} .delayq-axis span:last-child")
    assert left(f"{chart} .delayq-axis-max") < left(f"{chart} .delayq-axis span:nth-child(2)")


def test_a_search_is_written_from_left_to_right(new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    window = new_window(locale="ar")
    window.open(PAGES["scheduled"](stock.fill(scheduled=3).ids))
    field = window.page.locator(".delayq-search input[name=find]")
    for text, direction in (("task:send_invoice", "ltr"), ("فاتورة", "rtl")):
        field.fill(text)
        assert field.evaluate("(each) => getComputedStyle(each).direction") == direction
