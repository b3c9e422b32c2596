"""A long count: it ends before the confirm page, and shows no progress bar because its end is unknown."""

from collections.abc import Callable

from playwright.sync_api import APIResponse, Route, expect

from tests.admin.conftest import page
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.subprocesses import until


def test_the_confirm_page_comes_after_the_count(
    window: PageSession, stock: Fixtures, bounds: Callable[..., None]
) -> None:
    bounds(scanned_rows=50, batch_rows=50, count_seconds=-1.0, action_seconds=0.05)
    stock.fill(scheduled=400)
    # Without its script the page does not continue by itself.
    window.page.route("**/delayq.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
    window.open(page("scheduled", q="("))
    window.page.locator("input[name=all]").check()
    window.request_action("cancel")
    expect(window.page.locator("[role=status]").first).to_contain_text("match so far")
    expect(window.page.locator("progress")).to_have_count(0)
    window.assert_accessible()
    window.assert_tidy(1280, 375)
    window.page.unroute("**/delayq.js")
    window.page.get_by_role("button", name="Continue").click()
    # From here on it continues by itself, up to the confirm page.
    expect(window.page.locator("h1")).to_have_text("Cancel 403 waiting jobs?")
    stock.add()
    window.page.locator("input[name=typed_confirmation]").fill("403")
    window.page.get_by_role("button", name="Cancel 403 waiting jobs").click()
    expect(window.page.locator(".messagelist")).to_contain_text("403 jobs cancelled")
    expect(window.page.locator(".messagelist")).to_contain_text("More jobs match now")
    window.assert_calm()


def test_a_second_press_while_a_step_is_under_way_loses_nothing(
    window: PageSession, stock: Fixtures, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=-1.0, changed_jobs=1)
    stock.fill(scheduled=4)
    window.open(page("scheduled"))
    window.page.locator("input[name=all]").check()
    window.request_action("run_now")
    expect(window.page.get_by_role("button", name="Run 7 jobs now")).to_be_visible()
    # The button stays in place once the styles are loaded.
    window.page.wait_for_load_state("load")
    answers: list[tuple[Route, APIResponse]] = []

    def keep_the_answer(route: Route) -> None:
        if answers:
            route.continue_()
        else:
            answers.append((route, route.fetch()))

    window.page.route("**/action/", keep_the_answer)
    button = window.page.get_by_role("button", name="Run 7 jobs now")
    box = button.bounding_box()
    assert box is not None
    # The mouse alone: a locator would wait for the response that is held back.
    window.page.mouse.click(box["x"] + 5, box["y"] + 5)

    def is_answered() -> bool:
        # Playwright delivers events only during a wait.
        window.page.wait_for_timeout(50)
        return bool(answers)

    until(is_answered, what="the answer that is held back")
    window.page.mouse.click(box["x"] + 5, box["y"] + 5)
    ((route, answer),) = answers
    route.fulfill(response=answer)
    expect(window.page.locator(".messagelist")).to_contain_text("7 jobs will run now")
    window.assert_calm()
