"""The script: relative times, select all, copying, and long actions that continue by themselves."""

import re
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession

# The contrast of chart marks to their background by WCAG's formula.
CONTRASTS = """() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const drawn = { ".delayq-bar.done": "fill", ".delayq-bar.failed": "fill", ".delayq-bar.due": "fill",
        ".delayq-hatch": "stroke", ".delayq-line": "stroke", ".delayq-line.half": "stroke" };
    return Object.entries(drawn).map(([which, how]) => {
        const each = document.querySelector(`.delayq-plot ${which}`);
        const ground = light(getComputedStyle(each.closest(".delayq-plot")).backgroundColor);
        const mark = light(getComputedStyle(each)[how]);
        return [which, (Math.max(mark, ground) + 0.05) / (Math.min(mark, ground) + 0.05)];
    });
}"""


def test_relative_times_are_updated(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    window.page.clock.install()
    window.open(page("job_detail", stock.ids["scheduled"]))
    due = window.page.locator("dt", has_text="Due").locator("+ dd time .delayq-relative")
    expect(due).to_contain_text("in ")
    window.page.clock.pause_at(datetime.fromtimestamp(stock.now_us // 1_000_000, UTC) + timedelta(minutes=61))
    expect(due).to_have_text("60 min ago")


def test_times_are_shown_in_the_zone_that_is_chosen(new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    window = new_window(timezone_id="Asia/Tokyo")
    window.open(page("failed"))
    times = window.page.locator("#delayq table time").first
    when = datetime.fromisoformat(times.get_attribute("datetime") or "")
    hours = {}
    for zone in ("Local", "UTC", "Browser"):
        window.page.get_by_role("link", name=zone, exact=True).click()
        expect(window.page.get_by_role("link", name=zone, exact=True)).to_have_attribute("aria-current", "true")
        hours[zone] = (times.get_attribute("title") or "")[-8:-6]
    assert int(hours["UTC"]) == when.astimezone(UTC).hour
    assert int(hours["Local"]) == when.astimezone(ZoneInfo("Europe/Berlin")).hour
    assert int(hours["Browser"]) == (when.astimezone(UTC).hour + 9) % 24
    window.assert_calm()


def test_all_rows_are_selected_at_once_and_counted(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    window.open(page("failed"))
    every, rows = window.page.locator("[data-select-all]"), window.page.locator("[name=row]")
    ticked = window.page.locator("[data-selected-count]")
    expect(ticked).to_have_text("0")
    every.check()
    expect(window.page.locator("[name=row]:checked")).to_have_count(rows.count())
    expect(ticked).to_have_text(str(rows.count()))
    rows.first.uncheck()
    expect(ticked).to_have_text(str(rows.count() - 1))
    assert every.evaluate("(box) => box.indeterminate && !box.checked")
    rows.first.check()
    expect(every).to_be_checked()
    every.uncheck()
    expect(window.page.locator("[name=row]:checked")).to_have_count(0)


def test_shown_texts_can_be_copied(new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    window = new_window(permissions=["clipboard-read", "clipboard-write"])
    window.open(page("job_detail", stock.ids["failed"]))
    shown = "() => navigator.clipboard.readText()"
    window.page.get_by_role("button", name="Copy id").click()
    expect(window.page.locator("#delayq-announcement")).not_to_have_text("")
    assert window.page.evaluate(shown) == stock.ids["failed"]
    for name, source in (("Copy JSON", "#delayq-json"), ("Copy", "#delayq-traceback")):
        window.page.get_by_role("button", name=name, exact=True).click()
        text = window.page.locator(source).text_content()
        window.page.wait_for_function(
            "(text) => navigator.clipboard.readText().then((copied) => copied === text)", arg=text
        )
    window.assert_calm()


def test_long_actions_continue_by_themselves(window: PageSession, stock: Fixtures, bounds: Callable[..., None]) -> None:
    # A request handles one row and leaves the rest to the next.
    bounds(action_seconds=-1.0, changed_jobs=1)
    stock.fill(scheduled=4)
    window.open(page("scheduled"))
    window.page.locator("[data-select-all]").check()
    window.request_action("run_now")
    posts: list[str] = []
    window.page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    window.page.get_by_role("button", name="Run 7 jobs now").click()
    expect(window.page.locator(".messagelist")).to_contain_text("7 jobs will run now")
    assert len(posts) >= 6
    window.assert_calm()


def test_a_long_action_stops_at_its_button(window: PageSession, stock: Fixtures, bounds: Callable[..., None]) -> None:
    bounds(action_seconds=-1.0, changed_jobs=1)
    stock.fill(scheduled=200)
    window.open(page("scheduled"))
    window.page.locator("input[name=all]").check()
    window.request_action("run_now")
    window.page.get_by_role("button", name="Run 203 jobs now").click()
    window.page.get_by_role("button", name="Stop here").click()
    # The script may have continued before the click.
    expect(window.page.locator(".messagelist")).to_contain_text(re.compile(r"Stopped\. [0-9]{1,2} jobs? will run now"))
    window.open(page("overview"))
    expect(window.page.get_by_role("button", name="Continue")).to_have_count(0)
    # Not calm: the browser reports the request that the button interrupts.


def test_no_key_alone_does_anything(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    window.open(page("failed"))
    # Without the parts that change by themselves.
    shown = "() => [location.href, document.activeElement.tagName, document.querySelectorAll(':checked').length].join()"
    before = window.page.evaluate(shown)
    requests: list[str] = []
    window.page.on("request", lambda request: requests.append(request.url))
    for key in (*string.ascii_letters, *string.digits, *"/?.,-+*#!", "Escape", "Delete", "Enter", "Backspace"):
        window.page.keyboard.press(key)
    assert window.page.evaluate(shown) == before
    assert not requests


def test_charts_are_legible_in_every_theme(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=50)
    window.open(page("overview"))
    for _ in range(3):
        window.page.locator(".theme-toggle:visible").click()
        window.settle()
        pale = [(which, ratio) for which, ratio in window.page.evaluate(CONTRASTS) if ratio < 3]
        assert not pale, (window.page.locator("html").get_attribute("data-theme"), pale)
        window.assert_accessible(only_colours=True)
    window.assert_calm()
