"""One page of a browser with the errors that it reported, and the checks that every page must pass."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response, expect

from tests.browser.chromium import PATIENCE

_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
#: The two colour schemes.
_COLOURS = ["color-contrast"]
_AXE = Axe()
#: Parts of Django's own pages that this project cannot fix, by rule.
_OF_DJANGO = {"link-in-text-block": (".breadcrumbs",)}
# Neighbouring boxes that must not overlap, and elements that reach out of the window.
_CROWDED = """() => {
    const told = [];
    const shown = (box) => box.width > 1 && box.height > 1;
    const word = (each) => `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 30)}`;
    const rows = ".delayq-header, .delayq-controls, .delayq-tabs ul, .delayq-tiles, .delayq-toolbar, .delayq-filter,"
        + ".delayq-actions, .delayq-pager, .delayq-footer, .delayq-properties, .delayq-confirm, figcaption, tr,"
        + "#delayq-live";
    for (const row of document.querySelectorAll(rows)) {
        const boxes = [...row.children].map((each) => [each, each.getBoundingClientRect()])
            .filter(([, box]) => shown(box));
        boxes.forEach(([one, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (wide > 1 && high > 1 && getComputedStyle(other).position !== "absolute")
                told.push(`${word(other)} lies on ${word(one)}`);
        }));
    }
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) {
        told.push(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`);
        for (const each of document.querySelectorAll("body *")) {
            const box = each.getBoundingClientRect();
            const right = box.left + Math.max(box.width, each.scrollWidth);
            if (shown(box) && !each.closest(".delayq-scroll *") && (right > root.clientWidth + 1 || box.left < -1))
                told.push(`${word(each)} sticks out`);
        }
    }
    return told;
}"""


class PageSession:
    """One page of a browser."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        self.page: Page = context.new_page()
        self.url = url
        #: The errors that the browser reported since `open`.
        self.complaints: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)
        self.page.on("dialog", self._asked)

    def open(self, address: str, *, status: int = 200) -> None:
        """Open a page of the site."""
        self._status = status
        response = self.page.goto(self.url + address)
        assert response is not None
        assert response.status == status, f"{response.status}: {address}"

    def request_action(self, action: str) -> None:
        """Choose an action for the selected rows and press Go."""
        self.page.locator("select[name=action]").select_option(action)
        self.page.get_by_role("button", name="Go").first.click()

    def assert_calm(self) -> None:
        """Assert that there was no console message, no failed request and no violation of the policy."""
        # Once the page answers this, its earlier messages have arrived.
        self.page.evaluate("() => null")
        assert not self.complaints, self.complaints

    def darken(self) -> None:
        """Switch to the dark scheme."""
        self.page.emulate_media(color_scheme="dark")
        self.settle()

    def settle(self) -> None:
        """Wait for running colour transitions."""
        self.page.evaluate(
            "() => Promise.allSettled(document.getAnimations().map((each) => each.finished)).then(() => null)"
        )

    def assert_accessible(self, *, only_colours: bool = False) -> None:
        """Assert that axe finds nothing against WCAG 2.2 AA."""
        run = {"type": "rule", "values": _COLOURS} if only_colours else {"type": "tag", "values": _LEVELS}
        rules = {} if only_colours else {"target-size": {"enabled": True}}
        found = _AXE.run(self.page, options={"runOnly": run, "rules": rules, "resultTypes": ["violations"]})
        told = [
            f"{violation['id']} {node['target']}: {node['failureSummary']}\n{node['html'][:300]}"
            for violation in found.response["violations"]
            for node in violation["nodes"]
            if not self._is_of_django(violation["id"], node["target"][0])
        ]
        assert not told, "\n".join(told)

    def _is_of_django(self, rule: str, target: str) -> bool:
        # Axe's selector need not name the part: it is the shortest one that is unique on the page.
        inside = "([target, part]) => Boolean(document.querySelector(target)?.closest(part))"
        return any(self.page.evaluate(inside, [target, part]) for part in _OF_DJANGO.get(rule, ()))

    def assert_tidy(self, *widths: int) -> None:
        """Assert that nothing overlaps and nothing needs horizontal scrolling."""
        for width in widths:
            self.page.set_viewport_size({"width": width, "height": 900})
            crowded = self.page.evaluate(_CROWDED)
            assert not crowded, "\n".join(
                [f"{width} px: {self.page.url}", *(" ".join(each.split()) for each in crowded)]
            )

    def _said(self, message: ConsoleMessage) -> None:
        # The response reports the status once more.
        if "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        self.complaints.append(f"failed: {request.method} {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        # The browser requests the icon of a site by itself.
        if response.status >= 400 and response.status != self._status and "favicon" not in response.url:
            self.complaints.append(f"{response.status}: {response.url}")

    def _asked(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()
