"""Visit: one request to the pages: who asks, on which site, what they may, and what the store looks like just now."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from time import time_ns
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse

from django_delayq.admin.arguments import written_out
from django_delayq.admin.page import layout_context
from django_delayq.admin.permissions import allowed
from django_delayq.admin.timezone import zone_of
from django_delayq.clock import SECOND_US
from django_delayq.conf.config import AdminConfig
from django_delayq.conf.settings import get_config, on_config_dropped
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
