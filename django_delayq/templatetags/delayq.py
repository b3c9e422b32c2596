"""Template tags and filters of the admin's pages: moments, durations, numbers, tables, addresses, and the nonce."""

import re
from datetime import datetime, tzinfo
from html import escape
from typing import Any
from urllib.parse import urlencode

import django
from django import template
from django.template import Context
from django.template.base import NodeList, Parser, Token
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from django_delayq.clock import DAY_US, SECOND_US, moment, moment_us

register = template.Library()

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
#: Shown instead of a missing value.
NOTHING = "–"
#: Moments closer than so many seconds are "now".
_NOW = 1


@register.filter
def grouped(number: Any, places: int = 0) -> str:
    """Return a number with its digits grouped by the reader's language; a dash for None."""
    # Rounded here, because number_format truncates.
    return NOTHING if number is None else number_format(round(number, places), places, force_grouping=True)


@register.filter
def percent(share: float | None) -> str:
    """Return a share as a percentage; only the whole is 100 %."""
    if share is None:
        return NOTHING
    whole = share in (0, 1)
    # 99.97 % must not become 100 %.
    shown = share * 100 if whole else min(max(share * 100, 0.1), 99.9)
    return _("%s%%") % grouped(shown, 0 if whole else 1)


@register.filter(name="duration")
def duration_text(us: int | None) -> str:
    """Return a span in µs in its largest unit: `38 ms`, `1.4 s`, `3 min`."""
    if us is None:
        return NOTHING
    seconds = abs(us) / SECOND_US
    if seconds < 0.9995:
        return _("%s ms") % grouped(seconds * 1_000, 0 if seconds >= 0.00095 or not us else 2)
    if seconds < 9.95:
        return _("%s s") % grouped(seconds, 1)
    if seconds < 99.5:
        return _("%s s") % round(seconds)
    if seconds < 99.5 * _MINUTE:
        return _("%s min") % round(seconds / _MINUTE)
    if seconds < 47.5 * _HOUR:
        return _("%s h") % round(seconds / _HOUR)
    return _("%s d") % grouped(seconds / _DAY)


def relative_text(us: int) -> str:
    """Return a moment, given in µs from now, relative to now: `in 3 min`, `3 min ago`."""
    if abs(us) < _NOW * SECOND_US:
        return _("now")
    # Whole seconds: a clock is next to them, and the script updates them every second.
    seconds = abs(us) // SECOND_US
    span = _("%s s") % seconds if seconds < 100 else duration_text(seconds * SECOND_US)
    return (_("in %s") if us > 0 else _("%s ago")) % span


@register.filter
def sentence(text: object) -> str:
    """Return a text with the full stop of the reader's language."""
    return _("%s.") % text


@register.filter
def us(at: datetime) -> int:
    """Return a datetime of the database in µs since the epoch."""
    return moment_us(at if timezone.is_aware(at) else timezone.make_aware(at))


def zoned(us: int, tz: tzinfo) -> datetime:
    """Return the moment in a time zone, or in UTC if that is beyond the calendar."""
    at = moment(us)
    try:
        return at.astimezone(tz)
    except (OverflowError, ValueError):
        return at


def clock_text(us: int, now_us: int, tz: tzinfo) -> str:
    """Return the time of day, with the date unless it is today."""
    # A third of the cost of strftime().
    day, _separator, clock = zoned(us, tz).isoformat(timespec="seconds").partition("T")
    return clock[:8] if day == zoned(now_us, tz).date().isoformat() else f"{day} {clock[:8]}"


@register.simple_tag(name="moment", takes_context=True)
def moment_tag(context: Context, us: int | None, form: str = "both") -> str:
    """Return a moment relative to now and as a clock time; `form` as of `moment_html`."""
    if us is None:
        return NOTHING
    page = context["page"]
    return moment_html(us, page.now_us, page.timezone, form)


def moment_html(us: int, now_us: int, tz: tzinfo, form: str = "both") -> SafeString:
    """Return a moment as "both", "relative" or "clock", or as in a "list": relative if within a day, else its clock."""
    in_list = form == "list" and abs(us - now_us) < DAY_US
    utc = moment(us).replace(tzinfo=None).isoformat(timespec="seconds" if in_list else "milliseconds")
    relative, clock = escape(relative_text(us - now_us)), escape(clock_text(us, now_us, tz))
    if in_list:
        # The script updates a text without an element in it as a relative time.
        return mark_safe(f'<time datetime={utc}Z title="{clock}">{relative}</time>')
    parts = [f'<span class="delayq-relative">{relative}</span>'] if form in ("relative", "both") else []
    parts += [f'<span class="delayq-clock">{clock}</span>'] if form != "relative" else []
    return mark_safe(f'<time datetime="{utc}Z" title="{utc.replace("T", " ")} UTC">{" ".join(parts)}</time>')


_HEADING = re.compile(r'<th scope="col"[^>]*>(.*?)</th>', re.DOTALL)
#: What nobody sees of a heading, and arrows: they are no part of a label.
_NO_LABEL = re.compile(r'<span (?:class="delayq-visually-hidden"|aria-hidden="true")>.*?</span>|<[^>]*>', re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<t([hd])\b")


class _Labelled(template.Node):
    def __init__(self, nodelist: NodeList) -> None:
        self.nodelist = nodelist

    def render(self, context: Context) -> SafeString:
        head, end, body = self.nodelist.render(context).partition("</thead>")
        labels = [_NO_LABEL.sub("", each).strip().replace('"', "&quot;") for each in _HEADING.findall(head)]

        def label_row(row: re.Match[str]) -> str:
            left = iter(labels)
            return _CELL.sub(lambda cell: cell[0] + _label(cell[1], next(left, "")), row[0])

        return mark_safe(head + end + _ROW.sub(label_row, body))


def _label(kind: str, text: str) -> str:
    if not text or kind != "d":
        return ""
    return f" data-label={text}" if text.isalnum() else f' data-label="{text}"'


@register.tag
def labelled(parser: Parser, token: Token) -> _Labelled:
    """Name each cell of a table after its column: on narrow screens rows are cards, without the headings."""
    nodelist = parser.parse(("endlabelled",))
    parser.delete_first_token()
    return _Labelled(nodelist)


@register.simple_tag(takes_context=True)
def heading(context: Context, column: str, title: str, css_class: str = "") -> SafeString:
    """Return the heading of a column, with a link that sorts by it if the page has a `sorting` of its table."""
    attribute = format_html(' class="{}"', css_class) if css_class else ""
    link = context["sorting"].links.get(column) if context.get("sorting") else None
    if link is None:
        return format_html('<th scope="col"{}>{}</th>', attribute, title)
    if not link.direction:
        return format_html('<th scope="col"{}><a href="{}">{}</a></th>', attribute, link.url, title)
    arrow, words = ("▲", _("ascending")) if link.direction == "ascending" else ("▼", _("descending"))
    return format_html(
        '<th scope="col"{} aria-sort="{}"><a href="{}">{} <span aria-hidden="true">{}</span>'
        '<span class="delayq-visually-hidden">{}</span></a></th>',
        *(attribute, link.direction, link.url, title, arrow, words),
    )


@register.simple_tag
def row_button(label: str, of: str, title: str = "", **fields: object) -> SafeString:
    """Return the button of a row for what one press does; `of` is the row's name, `fields` are what it posts.

    The page includes `_row_form.html`, once.
    """
    # A form in each row, with a token of its own, was a third of a page.
    value, hint = urlencode(fields, errors="surrogatepass"), format_html(' title="{}"', title) if title else ""
    return format_html(
        '<button form=delayq-row name=of_row value="{}" aria-label="{} {}"{}>{}</button>',
        value,
        label,
        of,
        hint,
        label,
    )


@register.simple_tag(takes_context=True)
def renewed_us(context: Context, end_us: int) -> int:
    """Return when a lease that ends at `end_us` was renewed, at most now: the worker's own lease time may be longer."""
    page = context["page"]
    return int(min(page.now_us, end_us - page.store.config.worker.lease_us))


@register.simple_tag(takes_context=True)
def delayq_url(context: Context, name: str, *args: object, **query: object) -> str:
    """Return the address of a page on this site; empty values are omitted from the query."""
    return str(context["page"].url(name, *args, **query))


@register.simple_tag(takes_context=True)
def delayq_nonce(context: Context) -> str:
    """Return the nonce attribute of a link or script; empty without a nonce of a Content-Security-Policy."""
    # Django has its own tag only from 6.1 on; django-csp puts the nonce on the request.
    nonce = context.get("csp_nonce")
    if nonce is None:
        nonce = getattr(context.get("request"), "csp_nonce", None)
    text = "" if nonce is None else str(nonce)
    return format_html(' nonce="{}"', text) if text else ""


@register.simple_tag
def delayq_breadcrumbs_are_list() -> bool:
    """Return whether the admin's breadcrumbs are a list, as in Django 6.1 and later."""
    return django.VERSION >= (6, 1)
