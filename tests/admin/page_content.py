"""What a page shows: its text, the rows of its list, and its links."""

import re
from html import unescape
from typing import Any
from urllib.parse import urljoin

from django.test import Client

from tests.admin.conftest import page

#: Every page with a tab of its own, by the name of its address.
PAGES = (
    "overview",
    "scheduled",
    "queues",
    "limits",
    "running",
    "finished",
    "failed",
    "recurring",
    "tasks",
    "processes",
    "servers",
)
_ROW = re.compile(r"name=row value=([0-9a-f]{24}-[0-9]+)\.-?[0-9]+")


def ids(response: Any) -> list[str]:
    """Return the ids of a list's rows, from top to bottom."""
    assert response.status_code == 200, response
    return _ROW.findall(response.content.decode())


def link(response: Any, text: str) -> str:
    """Return the address of the link whose text begins so; empty if there is none."""
    found = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>[^<]*{text}', response.content.decode())
    return absolute(response, found[1]) if found else ""


def job_link(response: Any, text_id: str) -> str:
    """Return the address of a job's own page, as a list links to it."""
    found = re.search(rf'<th scope="row"[^>]*><a href="([^"]*/{text_id}/[^"]*)"', response.content.decode())
    assert found, text(response)
    return absolute(response, found[1])


def absolute(response: Any, href: str) -> str:
    """Return the address of a link as a browser resolves it."""
    return urljoin(response.wsgi_request.get_full_path(), unescape(href))


def text(response: Any) -> str:
    """Return a page without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.content.decode()))


def words(html: str) -> str:
    """Return HTML without its tags."""
    inner = html.split('<div id="delayq"', 1)[-1]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", inner)).split())


def rows(browser: Client, name: str = "queues", *args: object) -> dict[str, list[str]]:
    """Return the rows of the page's table: first cell -> the others, as text."""
    html = browser.get(page(name, *args)).content.decode().replace("<wbr>", "")
    # A button counts as its accessible name.
    html = re.sub(r'<button [^>]*aria-label="([^"]*)"[^>]*>[^<]*', r"\1", html)
    body = html.split("<tbody>")[1].split("</tbody>")[0]
    cells = [
        [
            " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split())
            for cell in re.findall(r"<t[hd].*?(?=<t[hd]|</tr>)", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr>.*?</tr>", body, re.DOTALL)
    ]
    return {first: rest for first, *rest in cells}
