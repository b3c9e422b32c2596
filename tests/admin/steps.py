"""What a person does for an action: select rows, confirm, continue, and read the result."""

from typing import Any

from django.test import Client

from tests.admin.forms import form_to
from tests.admin.page_content import text


def ask(browser: Client, address: str, action: str, *ticked: str, **fields: Any) -> Any:
    """Tick rows of a list (or all that match) and press Go."""
    answer = browser.get(address)
    form = form_to(answer, "/action/", button=action)
    boxes = [box for box in form.boxes if box[0] == "row" and box[1].split(".")[0] in ticked]
    assert len(boxes) == len(ticked)
    return form.post(browser, *boxes, action=action, **fields)


def confirm(browser: Client, answer: Any, **fields: Any) -> Any:
    """Press the button of the page that asks whether it is meant."""
    assert answer.status_code == 200, answer
    return form_to(answer, "/action/").post(browser, **fields)


def go_on(browser: Client, answer: Any) -> Any:
    """Press Continue until there is none; returns the answer after the last."""
    for _ in range(60):
        if answer.status_code == 302:
            return answer
        answer = form_to(answer, "/action/").post(browser)
    raise AssertionError("it never ends")


def done(browser: Client, answer: Any) -> str:
    """Follow back to the list and return what it tells."""
    assert answer.status_code == 302, text(answer)
    return text(browser.get(answer.url))
