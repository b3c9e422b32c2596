"""The layout at many widths: chips, cards on a phone, long names, targets, underlines, the skip link."""

import pytest
from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.admin.jobs import add, add_dead, claim
from tests.admin.reports import tell
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.pages import PAGES, TABS

PHONE = {"width": 375, "height": 800}
#: Pages whose tables become cards.
CARDS = (
    "scheduled",
    "failed",
    "failed, by error",
    "queues",
    "running",
    "processes",
    "tasks",
    "recurring",
    "limits",
    "servers",
)
#: A queue has at most 255 bytes.
LONG, QUEUE = "w" * 1_000, "q" * 255

TALL_CHIPS = """() => [...document.querySelectorAll("#delayq table .delayq-chip")]
    .filter((each) => each.getClientRects().length > 1 || each.offsetHeight > 25)
    .map((each) => `${each.textContent}: ${each.offsetHeight} px`)"""
# Words of headings that are broken into lines.
BROKEN_HEADINGS = """() => [...document.querySelectorAll("#delayq thead th")].flatMap((each) => [...each.childNodes])
    .filter((node) => node.nodeType === Node.TEXT_NODE)
    .flatMap((node) => [...node.data.matchAll(/\\S+/g)].filter((word) => {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        return range.getClientRects().length > 1;
    })).map(([word]) => word)"""
# Tables that need scrolling, and what a person needs of a row that is outside of the window.
OUT_OF_SIGHT = """() => {
    const wide = [...document.querySelectorAll("#delayq .delayq-cards")]
        .filter((each) => each.scrollWidth > each.parentElement.clientWidth + 1)
        .map((each) => `${each.caption.textContent}: ${each.scrollWidth} px`);
    const parts = "th, .error, .call, button, .delayq-button";
    const needed = document.querySelectorAll(`#delayq .delayq-cards tbody :is(${parts})`);
    return wide.concat([...needed].map((each) => [each, each.getBoundingClientRect()])
        .filter(([, box]) => box.width && (box.left < 0 || box.right > innerWidth + 1))
        .map(([each]) => each.outerHTML.slice(0, 200)));
}"""
OUT_OF_TABLE = """() => [...document.querySelectorAll("#delayq .delayq-scroll:has(.delayq-cards)")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1)
    .map((each) => `${each.scrollWidth} px in ${each.clientWidth}`)"""
LOW_TARGETS = """() => [...document.querySelectorAll("#delayq table :is(a, button), #delayq td label")]
    .filter((each) => !each.closest(".delayq-plot") && each.offsetHeight && each.offsetHeight < 24)
    .map((each) => each.outerHTML.slice(0, 200))"""
UNDERLINED = """() => [...document.querySelectorAll("#delayq :is(.delayq-tabs, .delayq-tiles, table, .delayq-choices,"
    + ".delayq-zones, .delayq-pager) a, #delayq a.delayq-chip, #delayq a.delayq-button")]
    .filter((each) => getComputedStyle(each).textDecorationLine !== "none")
    .map((each) => each.outerHTML.slice(0, 200))"""


@pytest.fixture
def long_names(stock: Fixtures) -> Fixtures:
    """Jobs, queues, workers and processes with the longest names."""
    apis = stock.apis
    apis.clock.now_us = stock.now_us
    add(apis, task=LONG, queue=QUEUE)
    add(apis, task=LONG, queue=QUEUE, delay=None)
    add_dead(apis, task=LONG, queue=QUEUE)
    worker, _ = claim(apis, add(apis, task=LONG, queue="mail", delay=None), queue="mail")
    worker.take(0, "mail", description=LONG)
    for kind in ("dispatcher", "worker"):
        tell(apis, kind=kind, code=kind.encode()[:8], queue=QUEUE, task=LONG, name=LONG, queues=[QUEUE], slots=4)
    apis.operations.pause(QUEUE, by=LONG)
    return stock


@pytest.mark.parametrize("name", PAGES)
def test_no_chip_and_no_word_of_a_heading_is_broken(name: str, window: PageSession, stock: Fixtures) -> None:
    window.open(PAGES[name](stock.fill(scheduled=20).ids))
    for width in (1280, 1366, 1440):
        window.page.set_viewport_size({"width": width, "height": 900})
        assert window.page.evaluate(TALL_CHIPS) == [], width
        assert window.page.evaluate(BROKEN_HEADINGS) == [], width


@pytest.mark.parametrize("name", CARDS)
def test_on_a_phone_rows_are_cards(name: str, window: PageSession, stock: Fixtures) -> None:
    window.page.set_viewport_size(PHONE)
    window.open(PAGES[name](stock.fill(scheduled=20).ids))
    assert window.page.evaluate(OUT_OF_SIGHT) == []
    window.assert_accessible()


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("width", [1280, 375])
def test_a_long_name_hides_no_column(tab: str, width: int, window: PageSession, long_names: Fixtures) -> None:
    window.page.set_viewport_size({"width": width, "height": 900})
    window.open(page(tab))
    assert window.page.evaluate(OUT_OF_TABLE) == []
    assert window.page.evaluate(OUT_OF_SIGHT) == []


@pytest.mark.parametrize("name", PAGES)
def test_targets_are_high_and_shapes_not_underlined(name: str, window: PageSession, stock: Fixtures) -> None:
    window.open(PAGES[name](stock.fill(scheduled=20).ids))
    assert window.page.evaluate(LOW_TARGETS) == []
    assert window.page.evaluate(UNDERLINED) == []


def test_a_link_skips_to_the_rows(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=3)
    window.open(page("scheduled"))
    skip = window.page.get_by_role("link", name="Skip to the rows")
    skip.focus()
    assert skip.bounding_box()["height"] >= 24  # type: ignore[index]
    window.page.keyboard.press("Enter")
    expect(window.page.locator("#delayq-rows")).to_be_focused()
    for _ in range(2):
        window.page.keyboard.press("Tab")
    expect(window.page.locator("[name=row]").first).to_be_focused()
