"""What a person does for an action: select rows, confirm, continue, and read the result."""

from typing import Any

from django.test import Client

from tests.admin.forms import form_to, forms
from tests.admin.page_content import text


def request_action(browser: Client, address: str, action: str, *selected: str, **fields: Any) -> Any:
    """Select rows of a list, or all that match, and press Go."""
    response = browser.get(address)
    form = form_to(response, "/action/", button=action)
    boxes = [box for box in form.boxes if box[0] == "row" and box[1].split(".")[0] in selected]
    assert len(boxes) == len(selected)
    return form.post(browser, *boxes, action=action, **fields)


def confirm(browser: Client, response: Any, **fields: Any) -> Any:
    """Press the button of the confirm page."""
    assert response.status_code == 200, response
    return form_to(response, "/action/").post(browser, **fields)


def continue_to_end(browser: Client, response: Any) -> Any:
    """Press Continue until there is no such button; return the last response."""
    for _ in range(60):
        if response.status_code == 302:
            return response
        response = form_to(response, "/action/").post(browser)
    raise AssertionError("it never ends")


def result(browser: Client, response: Any) -> str:
    """Follow the redirect to the list and return its text."""
    assert response.status_code == 302, text(response)
    return text(browser.get(response.url))


def undo(browser: Client, response: Any) -> Any:
    """Press the button of the message that undoes an action, and return the response."""
    (form,) = [form for form in forms(response) if form.is_undo]
    return form.post(browser)
