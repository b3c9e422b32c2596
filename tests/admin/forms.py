"""The forms of a page, posted like a browser without scripts, so that tests press the buttons that are there."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

#: The users who may not change anything, and whether the admin is read-only.
MAY_NOT_MANAGE = pytest.mark.parametrize(
    ("kind", "read_only"), [("viewer", False), ("staff", False), ("superuser", True), ("manager", True)]
)


@dataclass
class Form:
    """One form of a page."""

    action: str
    method: str
    #: (name, value) of filled-in fields, in the order of the page.
    fields: list[tuple[str, str]] = field(default_factory=list)
    #: (name, value) of checkboxes, and of buttons and choices.
    boxes: list[tuple[str, str]] = field(default_factory=list)
    #: Whether it belongs to a message, and undoes what that is about.
    is_undo: bool = False
    buttons: list[tuple[str, str]] = field(default_factory=list)
    #: If it is the form of a row: what the button of each action posts, in which the other fields are.
    row_values: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def post(self, browser: Client, *more: tuple[str, str], **fields: Any) -> Any:
        """Post it with other values, checked boxes and a pressed button; return the response, or the confirm page."""
        data: dict[str, list[str]] = {}
        if self.row_values:
            assert not more, "a row has no boxes"
            more = tuple(self.row_values[fields.pop("action")])
        for name, value in [*(() if self.row_values else self.fields), *more]:
            data.setdefault(name, []).append(value)
        response = browser.post(self.action, {**data, **fields})
        asks = response.status_code == 302 and response.url.split("?")[0].endswith("/action/")
        return browser.get(response.url) if asks else response

    def offers(self, value: str) -> bool:
        """Return whether it has a button or choice of that value."""
        return value in [each for _, each in self.buttons]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open: Form | None = None
        #: The form of the buttons of all rows.
        self._row_form = Form("", "")
        self._select = self._area = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        given = dict(attributes)
        if tag == "form":
            assert self._open is None, "a form within a form"
            self._open = Form(given.get("action", ""), given.get("method", "get").lower())
            self._open.is_undo = given.get("class") == "delayq-undo"
            if given.get("id") == "delayq-row":
                self._row_form = self._open
            else:
                self.forms.append(self._open)
        if tag == "button" and given.get("form") == "delayq-row":
            self._add_row_button(given["value"])
        if self._open is None:
            return
        name, value = given.get("name", ""), given.get("value", "")
        if tag == "input" and name:
            ticks = given.get("type") in ("checkbox", "radio")
            (self._open.boxes if ticks and "checked" not in given else self._open.fields).append((name, value))
        elif tag == "button":
            self._open.buttons.append((name, value))
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select:
            self._open.buttons.append((self._select, value))
            if "selected" in given:
                self._open.fields.append((self._select, value))
        elif tag == "textarea":
            self._area, self._text = name, []

    def _add_row_button(self, value: str) -> None:
        """Add the button to the form of its row. (Here each row has one.)"""
        given = QueryDict(value).dict()
        action = given.pop("action")
        shown = Form(self._row_form.action, self._row_form.method, [*self._row_form.fields, *given.items()])
        row = next((each for each in self.forms if each.row_values and each.fields == shown.fields), shown)
        if row is shown:
            self.forms.append(row)
        row.buttons.append(("action", action))
        row.row_values[action] = [*self._row_form.fields, ("of_row", value)]

    def handle_data(self, data: str) -> None:
        if self._area:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        elif tag == "select":
            self._select = ""
        elif tag == "textarea" and self._open is not None:
            self._open.fields.append((self._area, "".join(self._text).removeprefix("\n")))
            self._area = ""


def forms(response: Any) -> list[Form]:
    """Return the forms of a page."""
    reader = _Reader()
    reader.feed(response.content.decode())
    return reader.forms


def form_to(response: Any, action: str, *, button: str = "") -> Form:
    """Return the form of a page that posts to an address, and has a button or choice of that value."""
    found = [form for form in forms(response) if form.action.split("?")[0].endswith(action)]
    (form,) = [each for each in found if not each.is_undo and (not button or each.offers(button))]
    return form
