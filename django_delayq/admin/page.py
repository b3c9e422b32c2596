"""Page context: one request to the admin's pages, and the layout around each page (tabs, time zones, live update)."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cache, cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from django_delayq.admin.lists.error_groups import GroupOfShards, joined
from django_delayq.admin.lists.search_terms import suggestions
from django_delayq.admin.permissions import allowed
from django_delayq.admin.timezone import LOCAL, UTC_NAME, zone_of
from django_delayq.clock import SECOND_US
from django_delayq.conf.config import AdminConfig
from django_delayq.conf.settings import get_config, on_config_dropped, separate_aliases
from django_delayq.display.text import escaped, printable, short
from django_delayq.monitoring.store_view import StoreView
from django_delayq.store.queries.shard_reads import MissingServer
from django_delayq.store.store import Store
from django_delayq.task import registry
from django_delayq.templatetags.delayq import grouped

#: Seconds that one call to Redis may take: beside a silent server a page has time left to show the others.
_TIMEOUT = 2.0
#: How far the clocks of a host and of Redis may differ.
_SKEW_US = SECOND_US
#: Control characters, lone surrogates (they have no bytes in UTF-8), and characters that change the reading direction,
#: hide text, or break lines. U+200C to U+200F are allowed, since some languages need them.
_RAW = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]")


_MISSING_HERE = ngettext_lazy(
    "%(server)s does not answer: the shard that it has (%(shards)s) is missing in all lists and counts.",
    "%(server)s does not answer: the %(count)s shards that it has (%(shards)s) are missing in all lists and counts.",
    "n",
)
_LEFT_ALONE = ngettext_lazy(
    "%(server)s does not answer: jobs of the shard that it has (%(shards)s) were left alone.",
    "%(server)s does not answer: jobs of the %(count)s shards that it has (%(shards)s) were left alone.",
    "n",
)
_REPEAT = ngettext_lazy(
    "%(server)s does not answer: do this again when it is back, for the jobs of its shard (%(shards)s).",
    "%(server)s does not answer: do this again when it is back, for the jobs of its %(count)s shards (%(shards)s).",
    "n",
)


@cache
def admin_store() -> Store:
    """Return this process's store for pages, whose calls have a timeout of their own."""
    return Store(replace(get_config(), enqueue_timeout=_TIMEOUT))


def _close_store() -> None:
    if admin_store.cache_info().currsize:
        # Otherwise the garbage collector closes its connections, with a ResourceWarning.
        admin_store().disconnect_idle()
    admin_store.cache_clear()


on_config_dropped.append(_close_store)
os.register_at_fork(after_in_child=admin_store.cache_clear)


def _missing_text(text: Any, server: MissingServer) -> str:
    """Return a sentence about a server that does not answer, and its shards."""
    facts = {"server": printable(server.server), "shards": ", ".join(map(str, server.shards))}
    return str(text % {"n": len(server.shards), "count": grouped(len(server.shards)), **facts})


class PageResponse(TemplateResponse):
    """A page without raw control characters, even if Redis, an address or an account name contains some."""

    @property
    def rendered_content(self) -> str:
        """Return the page with such characters escaped."""
        # `printable` escapes each value already; this is the safety net for a forgotten one.
        return _RAW.sub(lambda found: escaped(found[0]), super().rendered_content)


@dataclass(frozen=True)
class PageContext(StoreView):
    """One request to the pages."""

    request: HttpRequest
    site: AdminSite
    config: AdminConfig
    #: Both are False in read-only mode.
    may_manage: bool
    may_reveal: bool
    #: Only render the part of the page that live update replaces.
    fragment: bool = False
    #: An action of this person that has not ended, see `actions/session.py`.
    unfinished: Any = None

    @classmethod
    def of(cls, request: HttpRequest, site: AdminSite) -> "PageContext":
        """Read the user's permissions; reads nothing from Redis."""
        config = get_config().admin
        return cls(
            request=request,
            site=site,
            config=config,
            store=admin_store(),
            may_manage=not config.read_only and allowed(request, config.manage_permission),
            # Revealing writes to the audit log, so read-only mode excludes it.
            may_reveal=not config.read_only and allowed(request, config.payload_permission),
        )

    def for_fragment(self) -> "PageContext":
        """Return the same page limited to the part that live update replaces."""
        return replace(self, fragment=True)

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """The fields of the posted form, or of the address: both may say what to do. The last value of each counts.

        The button of a row has further ones in its value, as a query string: see the tag `row_button`.
        """
        fields = (self.request.POST if self.request.method == "POST" else self.request.GET).dict()
        return fields | QueryDict(fields.pop("of_row", "")).dict()

    @cached_property
    def error_groups(self) -> Mapping[bytes, GroupOfShards]:
        """The error groups that have failed jobs, by their digests; one round trip."""
        return joined(self.reads.read(lambda shard: self.store.error_groups(shard).read_counts()).values())

    @property
    def missing(self) -> list[str]:
        """A sentence for each server that did not answer: what it has is not on the page."""
        return [_missing_text(_MISSING_HERE, each) for each in self.reads.missing]

    def left_alone(self, *, again: bool = False) -> list[str]:
        """Return the same about an action, which left alone what these servers have; `again`: repeat it later."""
        return [_missing_text(_REPEAT if again else _LEFT_ALONE, each) for each in self.reads.missing]

    @property
    def skew_us(self) -> int:
        """µs that Redis's clock is ahead of this host's; of several servers the one that differs most."""
        return self.snapshot.ahead_us

    @property
    def skewed(self) -> bool:
        """Whether the clocks differ too much for due times that hosts compute."""
        return abs(self.skew_us) - self.snapshot.within_us > _SKEW_US

    @cached_property
    def zone(self) -> tuple[str, tzinfo]:
        """The chosen time zone: the choice and its tzinfo."""
        return zone_of(self.request)

    @property
    def timezone(self) -> tzinfo:
        """The time zone of the times on the page."""
        return self.zone[1]

    def url(self, name: str, *args: object, **query: object) -> str:
        """Return the address of a page on this site: `url("failed", queue="mail")`. Empty values are omitted.

        The caller passes names in a query through `filters.url_name`.
        """
        route = "queue_changelist" if name == "overview" else name
        path = reverse(f"admin:django_delayq_{route}", args=args, current_app=self.site.name)
        given = {key: value for key, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(given, doseq=True, errors='surrogatepass')}" if given else path

    def render(
        self, template: str, *, tab: str, title: str, status: int = 200, redis_down: bool = False, **context: Any
    ) -> PageResponse:
        """Return a page: `render("failed.html", tab="failed", title=_("Failed jobs"), rows=rows)`."""
        base_template = "_fragment.html" if self.fragment else "_page.html"
        full = {
            **self.site.each_context(self.request),
            "page": self,
            "base_template": f"admin/django_delayq/{base_template}",
            "tab": tab,
            "title": title,
            "redis_down": redis_down,
            **layout_context(self, tab, redis_down=redis_down),
            **context,
        }
        return PageResponse(self.request, f"admin/django_delayq/{template}", full, status=status)


#: Choices of the seconds between two live updates.
_INTERVALS = (5, 15, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One tab of the navigation."""

    name: str
    title: str
    url: str
    count: int | None = None
    #: Show the count in red: it counts problems.
    bad: bool = False


def layout_context(page: PageContext, tab: str, *, redis_down: bool) -> dict[str, Any]:
    """Return the context of the layout templates; with `redis_down`, reads nothing from Redis."""
    path, query = page.request.path, page.request.GET.copy()
    query.pop("zone", None)
    others = other_stores()
    panel = page.url("live", tab) if tab and path == page.url(tab) and not redis_down else ""
    return {
        "tabs": _tabs(page, tab, redis_down=redis_down),
        "panel_url": f"{panel}?{query.urlencode()}" if panel and query else panel,
        "intervals": _INTERVALS,
        "search_terms": []
        if redis_down
        else suggestions(page.snapshot.queues, (task.name for task in registry.tasks())),
        "other_stores": others,
        "other_aliases": ", ".join(each.alias for each in others),
        "example": _example_call(),
        # Each choice is a link to this page, and the response to a POST has no page to link to.
        "zones": _zones(page.zone[0], query.urlencode()) if page.request.method != "POST" else [],
    }


def _example_call() -> str:
    """Return how to enqueue a job of the first task of the project; empty if there is none."""
    task = next(iter(registry.tasks()), None)
    if task is None:
        return ""
    # A task made by Django's decorator has no `after()`.
    delay = "using(run_after=timedelta(minutes=1))" if hasattr(task, "run_after_us") else "after(minutes=1)"
    return f"{printable(short(task.name))}.{delay}.enqueue({'…' if task.signature.parameters else ''})"


def _zones(chosen: str, query: str) -> list[tuple[str, str, str, bool]]:
    """Return (title, zone, address, whether chosen) for each choice; delayq.js fills in the browser's zone."""
    browser_zone = "" if chosen in (LOCAL, UTC_NAME) else chosen
    local_zone = timezone.get_current_timezone_name()
    titles = {LOCAL: (_("Local"), local_zone), UTC_NAME: (_("UTC"), ""), browser_zone: (_("Browser"), browser_zone)}
    given = f"{query}&" if query else ""
    return [(*titles[name], f"?{given}zone={name}", name == chosen) for name in titles]


def _tabs(page: PageContext, tab: str, *, redis_down: bool) -> list[Tab]:
    titles = {
        "overview": _("Overview"),
        "scheduled": _("Scheduled"),
        "queues": _("Queues"),
        "limits": _("Limits"),
        "running": _("Running"),
        "finished": _("Finished"),
        "failed": _("Failed"),
        "recurring": _("Recurring"),
        "tasks": _("Tasks"),
        "processes": _("Workers"),
        "servers": _("Servers"),
    }
    counts: dict[str, int] = {}
    if not redis_down:
        now = page.snapshot
        counts = {
            "scheduled": now.total.scheduled,
            "queues": len(now.queues),
            "running": now.claimed,
            "failed": now.dead,
            "recurring": now.schedules,
        }
    if not (tab == "limits" or page.store.config.tasks.limits or (counts and page.snapshot.paused_tasks)):
        # Few projects have limits.
        del titles["limits"]
    if not (tab == "finished" or page.store.config.worker.finished_kept):
        del titles["finished"]
    if not (tab == "recurring" or counts.get("recurring")):
        del titles["recurring"]
    if not (tab == "servers" or page.store.shard_count > 1 or page.store.layout.has_changed):
        # The footer of the overview has the facts of a single server, and links to its page.
        del titles["servers"]
    return [
        Tab(
            name=name,
            title=title,
            url=page.url(name),
            count=counts.get(name),
            bad=name == "failed" and bool(counts.get(name)),
        )
        for name, title in titles.items()
    ]


class OtherStore(NamedTuple):
    """One alias of TASKS whose jobs are in another store."""

    alias: str
    #: The URL of its Redis without user and password, and the prefix of its keys.
    display_url: str = ""
    prefix: str = ""
    #: Set instead of the two: why its settings cannot be read.
    problem: str = ""


def other_stores() -> list[OtherStore]:
    """Return the stores that are not on these pages."""
    shown = get_config()
    found = []
    for alias in separate_aliases():
        try:
            config = get_config(alias)
        except ImproperlyConfigured as error:
            found.append(OtherStore(printable(alias), problem=printable(str(error))))
            continue
        # An alias may name the same store by mistake; `manage.py check` reports it.
        if (config.redis, config.prefix) != (shown.redis, shown.prefix):
            found.append(OtherStore(printable(alias), printable(config.redis.display_url), printable(config.prefix)))
    return found
