"""The pages in other themes, light and dark: controls have an edge or a ground, texts have contrast."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.pages import PAGES

ROOT = Path(__file__).parents[3]
#: Django's own, and packages. All are dark if the browser prefers that; Grappelli by Django's variables.
THEMES = ("", "unfold", "jazzmin", "grappelli")
SHOWN = ("overview", "scheduled", "failed", "job, failed", "queues")

# WCAG's contrast of what can be seen of a control to what is behind it, and of texts to their ground.
FAINT = """() => {
    const rgba = (colour) => {
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, ground) => [0, 1, 2].map((at) => top[at] * top[3] + ground[at] * (1 - top[3])).concat(1);
    const behind = (each) => {
        const layers = [];
        for (let at = each; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((ground, top) => over(top, ground), [255, 255, 255, 1]);
    };
    const light = (colour) => {
        const [r, g, b] = colour.slice(0, 3).map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const told = [];
    const name = (each) => `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 30)}`;
    const shown = (each) => each.checkVisibility({ visibilityProperty: true }) && each.offsetWidth !== 1;
    const controls = "button, select, input:not([type=hidden], [type=checkbox], [type=radio]), .delayq-button";
    for (const each of document.querySelectorAll(`#delayq :is(${controls})`)) {
        if (!shown(each)) continue;
        const style = getComputedStyle(each), ground = behind(each.parentElement);
        const edged = parseFloat(style.borderTopWidth) >= 1 && style.borderTopStyle !== "none";
        const edge = edged ? contrast(over(rgba(style.borderTopColor), ground), ground) : 1;
        const best = Math.max(edge, contrast(behind(each), ground));
        if (best < 3) told.push(`${name(each)}: ${best.toFixed(2)}`);
    }
    const texts = document.createTreeWalker(document.getElementById("delayq"), NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        const each = text.parentElement;
        if (!text.data.trim() || !shown(each) || each.closest("svg, .delayq-visually-hidden, option")) continue;
        const ground = behind(each);
        const found = contrast(over(rgba(getComputedStyle(each).color), ground), ground);
        if (found < 4.5) told.push(`text ${name(each)}: ${found.toFixed(2)}`);
    }
    return [...new Set(told)];
}"""


@pytest.fixture(params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    """The theme's name; empty for Django's own."""
    name = str(request.param)
    if name and importlib.util.find_spec(name) is None:
        # CI installs the extra `themes`; `make test` does not need its 25 MB.
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def themed(theme: str, browser: Browser, redis_url: str, stock: Fixtures) -> Iterator[dict[str, Any]]:
    """The pages with a theme, in a process of their own: a theme is an app."""
    settings = f"tests.browser.themes.{theme}" if theme else "tests.admin.settings"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.browser.themes", redis_url],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": settings, "DELAYQ_TEST_REDIS": redis_url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin and server.stdout
    yield json.loads(server.stdout.readline())
    server.stdin.close()
    server.wait(timeout=30)
    server.stdout.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_controls_and_texts_can_be_seen(
    scheme: str, theme: str, themed: dict[str, Any], browser: Browser, stock: Fixtures
) -> None:
    stock.fill(scheduled=20)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, locale="en-GB")
    context.add_cookies([themed["cookie"]])
    window = PageSession(context, themed["url"])
    try:
        for name in SHOWN:
            window.open(PAGES[name](stock.ids))
            window.settle()
            faint = window.page.evaluate(FAINT)
            assert not faint, "\n".join([name, *faint])
    finally:
        context.close()
