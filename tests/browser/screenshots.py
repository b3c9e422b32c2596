"""Screenshots of every page, light and dark: `python -m tests.browser.screenshots FOLDER [WIDTH]`."""

import os
import sys
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.admin.settings")
django.setup()

# Not before Django is set up.
from django_delayq.testing.local_redis import LocalRedisServer, find_server  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.browser.fixtures import Fixtures  # noqa: E402
from tests.browser.live_server import served  # noqa: E402
from tests.browser.pages import PAGES  # noqa: E402


def main(folder: Path, width: int) -> None:
    """Take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    program = chromium.find() or sys.exit("There is no browser on PATH.")
    with (
        LocalRedisServer(server=find_server()) as server,
        served(server.url) as site,
        chromium.launched(program) as browser,
    ):
        for scheme in ("light", "dark"):
            stock = Fixtures(server.url)
            stock.apis.client.flushall()
            stock.fill(scheduled=4_000)
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, locale="en-GB")
            context.add_cookies([site.cookie])
            page = context.new_page()
            for name, address in PAGES.items():
                page.goto(site.url + address(stock.ids))
                page.screenshot(path=folder / f"{name.replace(', ', '-').replace(' ', '-')}-{scheme}.png")
            for list_name, action in (("scheduled", "reschedule"), ("failed", "delete")):
                page.goto(site.url + PAGES[list_name](stock.ids))
                for tick in page.locator("[name=row]").all()[:2]:
                    tick.check()
                page.locator("select[name=action]").select_option(action)
                page.get_by_role("button", name="Go", exact=True).first.click()
                page.locator(".delayq-confirm").wait_for()
                page.screenshot(path=folder / f"confirm-{list_name}-{scheme}.png")
            context.close()
            stock.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1280)
