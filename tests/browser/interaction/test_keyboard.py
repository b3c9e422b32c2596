"""The keyboard alone: Tab reaches every control with a visible focus; Space and Enter operate it."""

from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.admin.jobs import state
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession

#: Most presses of Tab before a control counts as unreachable.
REACH = 80
AUTOFOCUS_IS_OVER = "() => !document.querySelector('[autofocus]') || document.activeElement !== document.body"
# The focus must be visible, not covered, and inside the window.
UNSEEN = """() => {
    const each = document.activeElement;
    if (each === document.body) return "nothing has the focus";
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    const ringed = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    const at = `${each.tagName} ${each.type} ${each.name} ${each.className} ${each.textContent.trim().slice(0, 30)}`;
    if (!ringed && style.boxShadow === "none") return `${at}: no ring`;
    if (box.bottom < 0 || box.top > innerHeight) return `${at}: outside of the window`;
    return "";
}"""


def tab_to(window: PageSession, selector: str) -> None:
    """Press Tab until a matching control has the focus; check the visible focus on the way."""
    # A Tab before the page has moved the focus to its autofocus element stops that, and the console says so.
    window.page.wait_for_function(AUTOFOCUS_IS_OVER)
    for _ in range(REACH):
        window.page.keyboard.press("Tab")
        if window.page.evaluate("() => !!document.activeElement.closest('#delayq')"):
            unseen = window.page.evaluate(UNSEEN)
            assert not unseen, unseen
        if window.page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(
        f"{selector} is out of reach: {window.page.evaluate('() => document.activeElement.outerHTML')}"
    )


def test_failed_jobs_are_reached_filtered_selected_and_retried(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    window.open(page("overview"))
    keys = window.page.keyboard
    tab_to(window, ".delayq-tabs a[href$='/failed/']")
    keys.press("Enter")
    window.page.wait_for_url("**/failed/")
    tab_to(window, "#delayq [name=find]")
    keys.type("task:send_invoice")
    keys.press("Enter")
    window.page.wait_for_url("**task=send_invoice**")
    tab_to(window, "select[name=action]")
    keys.type("Retry now")
    tab_to(window, "[name=row]")
    keys.press("Space")
    text_id = window.page.evaluate("() => document.activeElement.value").split(".")[0]
    expect(window.page.locator("[data-selected-count]")).to_have_text("1")
    # Enter in a form presses its first button.
    keys.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text("1 job retried")
    assert state(stock.apis, text_id) == "ready"
    # The button of a row does the same with the next one.
    tab_to(window, "button[name=one]")
    text_id = window.page.evaluate("() => document.activeElement.value").split(".")[0]
    keys.press("Enter")
    window.page.wait_for_function("() => !document.activeElement.matches('button[name=one]')")
    expect(window.page.locator(".messagelist .success")).to_contain_text("1 job retried")
    assert state(stock.apis, text_id) == "ready"
    window.assert_calm()


def test_enter_on_an_unread_confirm_page_does_nothing(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=3)
    window.open(page("job_detail", stock.ids["scheduled"]))
    tab_to(window, "button[value=cancel]")
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("link", name="Go back", exact=True)).to_be_focused()
    window.page.keyboard.press("Enter")
    window.page.wait_for_url(f"**/job/{stock.ids['scheduled']}/**")
    assert state(stock.apis, stock.ids["scheduled"]) == "scheduled"


def test_every_stop_of_every_tab_shows_the_focus(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=2)
    for tab in ("overview", "queues", "running", "tasks", "processes"):
        window.open(page(tab))
        # After the last stop the browser's own controls begin.
        stops = 0
        for _ in range(REACH):
            window.page.keyboard.press("Tab")
            where = window.page.evaluate(
                "() => document.activeElement.closest('#delayq') ? 'ours' : document.activeElement.tagName"
            )
            if where == "ours":
                stops += 1
                unseen = window.page.evaluate(UNSEEN)
                assert not unseen, f"{tab}: {unseen}"
            elif stops:
                break
        assert stops >= 10, tab
