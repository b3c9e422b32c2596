"""Page: one request to the admin's pages, and the layout around each page: tabs with counts, and toggles."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from time import time_ns
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin.arguments import printable, written_out
from django_delayq.admin.permissions import allowed
from django_delayq.admin.timezone import LOCAL, UTC_NAME, zone_of
from django_delayq.clock import SECOND_US
from django_delayq.conf.config import AdminConfig
from django_delayq.conf.settings import get_config, on_config_dropped, separate_aliases
from django_delayq.store.queries.snapshot import Process, Snapshot, combined
from django_delayq.store.store import Store

#: Seconds for a call's four steps, so that a page without Redis answers within three.
_TIMEOUT = 8.0
#: How far the clocks of a host and of Redis may differ.
_SKEW_US = SECOND_US
#: Control characters, lone surrogates (they have no bytes in UTF-8), and what turns the reading direction, hides, or
#: breaks lines. Marks that translations use are not among them.
_RAW = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]")
_store: Store | None = None


def admin_store() -> Store:
    """Return this process's store for pages: its calls give up sooner than those of workers."""
    global _store
    if _store is None:
        _store = Store(replace(get_config(), enqueue_timeout=_TIMEOUT))
    return _store


def _drop_store() -> None:
    global _store
    _store = None


on_config_dropped.append(_drop_store)
os.register_at_fork(after_in_child=_drop_store)


class PageResponse(TemplateResponse):
    """A page without raw control characters, whatever came from Redis, an address, or the name of an account."""

    @property
    def rendered_content(self) -> str:
        """Return the page with what cannot be sent or seen written out."""
        # Values go through `visible` before: this is for the one that somebody forgets.
        return _RAW.sub(lambda found: written_out(found[0]), super().rendered_content)


@dataclass(frozen=True)
class PageContext:
    """One request to the pages."""

    request: HttpRequest
    site: AdminSite
    config: AdminConfig
    store: Store
    #: Both are False in read-only mode.
    may_manage: bool
    may_reveal: bool
    #: Only the part of the page that live update replaces is asked for.
    fragment: bool = False

    @classmethod
    def of(cls, request: HttpRequest, site: AdminSite) -> "PageContext":
        """Look at who asks; asks Redis nothing yet."""
        config = get_config().admin
        return cls(
            request=request,
            site=site,
            config=config,
            store=admin_store(),
            may_manage=not config.read_only and allowed(request, config.manage_permission),
            # To see what is hidden is an action too: it is written into the log.
            may_reveal=not config.read_only and allowed(request, config.payload_permission),
        )

    def for_fragment(self) -> "PageContext":
        """Return the same visit, of which only the part of the page is wanted that live update replaces."""
        return replace(self, fragment=True)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The whole store at one moment, over all shards."""
        return self.load_snapshot()

    def load_snapshot(self, *, tasks: Sequence[str] = (), facts: bool = False) -> Snapshot:
        """Take the snapshot with the figures of tasks or what the server tells in it; before anybody else reads it."""
        before = time_ns()
        shards = range(self.store.config.shards)
        taken = combined([self.store.dashboard(shard).snapshot(tasks=tasks, facts=facts) for shard in shards])
        # cached_property keeps its value here, also in a frozen dataclass.
        self.__dict__["snapshot"] = taken
        self.__dict__["server_us"] = (before + time_ns()) // 2_000
        return taken

    @cached_property
    def alive(self) -> list[Process]:
        """The dispatchers and workers that are not lost."""
        now, lease_us = self.snapshot, self.store.config.worker.lease_us
        return [each for each in now.processes if not each.is_lost(now.now_us, lease_us=lease_us)]

    def workers_of(self, queue: str) -> list[Process]:
        """Return the workers that take jobs from a queue."""
        return [each for each in self.alive if each.serves(queue) and not each.quiet]

    @property
    def now_us(self) -> int:
        """Redis's time."""
        return self.snapshot.now_us

    @property
    def skew_us(self) -> int:
        """How far Redis's clock is ahead of this host's, to about a round trip."""
        now_us = self.snapshot.now_us
        return now_us - int(self.__dict__.get("server_us", now_us))

    @property
    def skewed(self) -> bool:
        """Whether the clocks differ by more than moments given by hosts should."""
        return abs(self.skew_us) > _SKEW_US

    @property
    def server_us(self) -> int:
        """This host's time when the snapshot was taken."""
        return self.now_us - self.skew_us

    @cached_property
    def zone(self) -> tuple[str, tzinfo]:
        """By which clock times are shown: the choice and what it means."""
        return zone_of(self.request)

    @property
    def timezone(self) -> tzinfo:
        """The time zone of the times on the page."""
        return self.zone[1]

    def url(self, name: str, *args: object, **query: object) -> str:
        """Return the address of one of our pages on this site: `url("dead", queue="mail")`; empty values are left out.

        Queues' names in a query go through `filters.url_name`.
        """
        full = "queue_changelist" if name == "overview" else name
        path = reverse(f"admin:django_delayq_{full}", args=args, current_app=self.site.name)
        given = {key: value for key, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(given, doseq=True, errors='surrogatepass')}" if given else path

    def render(
        self, template: str, *, tab: str, title: str, status: int = 200, down: bool = False, **context: Any
    ) -> PageResponse:
        """Return a page: `render("dead.html", tab="dead", title=_("Dead letters"), rows=rows)`."""
        frame = "_fragment.html" if self.fragment else "_page.html"
        full = {
            **self.site.each_context(self.request),
            "visit": self,
            "frame": f"admin/django_delayq/{frame}",
            "tab": tab,
            "title": title,
            "down": down,
            **layout_context(self, tab, down=down),
            **context,
        }
        return PageResponse(self.request, f"admin/django_delayq/{template}", full, status=status)


#: Seconds between two updates, as the reader may choose.
_INTERVALS = (5, 15, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One tab."""

    name: str
    title: str
    url: str
    count: int | None = None
    #: The count is of something that is wrong.
    bad: bool = False


def layout_context(visit: PageContext, tab: str, *, down: bool) -> dict[str, Any]:
    """Return what the frame's templates need; asks Redis nothing where it is down."""
    here, query = visit.request.path, visit.request.GET.copy()
    query.pop("zone", None)
    others = other_stores()
    panel = visit.url("live", tab) if tab and here == visit.url(tab) and not down else ""
    return {
        "tabs": _tabs(visit, down=down),
        "panel_url": f"{panel}?{query.urlencode()}" if panel and query else panel,
        "intervals": _INTERVALS,
        "other_stores": others,
        "other_aliases": ", ".join(each.alias for each in others),
        # What answers a post has no address to come back to.
        "zones": _zones(visit.zone[0], query.urlencode()) if visit.request.method != "POST" else [],
    }


def _zones(chosen: str, query: str) -> list[tuple[str, str, str, bool]]:
    """Return the choices: title, zone, address, whether it is this one. What the browser has the script knows."""
    browsers = "" if chosen in (LOCAL, UTC_NAME) else chosen
    here = timezone.get_current_timezone_name()
    titles = {LOCAL: (_("Local"), here), UTC_NAME: (_("UTC"), ""), browsers: (_("Browser"), browsers)}
    given = f"{query}&" if query else ""
    return [(*titles[name], f"?{given}zone={name}", name == chosen) for name in titles]


def _tabs(visit: PageContext, *, down: bool) -> list[Tab]:
    titles = {
        "overview": _("Overview"),
        "pending": _("Pending"),
        "queues": _("Queues"),
        "running": _("Running"),
        "dead": _("Dead"),
        "functions": _("Functions"),
        "processes": _("Processes"),
    }
    counts: dict[str, int] = {}
    if not down:
        now = visit.snapshot
        counts = {"pending": now.total.scheduled, "queues": len(now.queues), "running": now.claimed, "dead": now.dead}
    return [
        Tab(
            name=name,
            title=title,
            url=visit.url(name),
            count=counts.get(name),
            bad=name == "dead" and bool(counts.get(name)),
        )
        for name, title in titles.items()
    ]


class OtherStore(NamedTuple):
    """One alias whose jobs stand elsewhere, in words."""

    alias: str
    #: Where its Redis is, without user and password, and the prefix of its keys there.
    display_url: str = ""
    prefix: str = ""
    #: Why its settings cannot be read, in place of the two.
    problem: str = ""


def other_stores() -> list[OtherStore]:
    """Return the stores that are not the one on these pages."""
    shown = get_config()
    found = []
    for alias in separate_aliases():
        try:
            config = get_config(alias)
        except ImproperlyConfigured as error:
            found.append(OtherStore(printable(alias), problem=printable(str(error))))
            continue
        # By mistake an alias may name the very same store; `manage.py check` reports it.
        if (config.redis, config.prefix) != (shown.redis, shown.prefix):
            found.append(OtherStore(printable(alias), printable(config.redis.display_url), printable(config.prefix)))
    return found
