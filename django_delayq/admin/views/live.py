"""Live update: the part of a page that delayq.js replaces if it changed."""

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b

from django.http import Http404, HttpResponse, HttpResponseNotModified
from django.template.response import SimpleTemplateResponse

from django_delayq.admin.page import PageContext

#: Parts that change by themselves: relative times, the footer's clock, the CSRF token, and times in links.
_VOLATILE = re.compile(
    rb'<span class="delayq-relative">[^<]*</span>|(?<=">)[^<]+</time>|<div class="delayq-footer">.*?</div>'
    rb'|name="(?:csrfmiddlewaretoken|seen_us)" value="[^"]*"|\b(?:from|to)=[0-9]+',
    re.DOTALL,
)


def show(panels: Mapping[str, Callable[[PageContext], HttpResponse]], page: PageContext, panel: str) -> HttpResponse:
    """Return the part of a page, or 304 if the browser has it already. Raises Http404 for a page without one."""
    if panel not in panels:
        raise Http404
    response = panels[panel](page.for_fragment())
    if isinstance(response, SimpleTemplateResponse):
        response.render()
    etag = f'"{blake2b(_VOLATILE.sub(b"", response.content), digest_size=12).hexdigest()}"'
    if page.request.headers.get("If-None-Match") == etag:
        response = HttpResponseNotModified()
    response["ETag"] = etag
    return response
