"""Serve the pages with the theme of DJANGO_SETTINGS_MODULE: `python -m tests.browser.themes REDIS_URL`.

It prints its address and the cookie of the session as JSON, and ends with its standard input.
"""

import json
import sys

import django

django.setup()

# Not before Django is set up.
from tests.browser.live_server import served  # noqa: E402

with served(sys.argv[1], strict=False) as site:
    print(json.dumps({"url": site.url, "cookie": site.cookie}), flush=True)
    sys.stdin.read()
