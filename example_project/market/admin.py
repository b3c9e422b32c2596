"""The market in Django's admin. The run log is read-only, because it is evidence."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from market.models import Bid, Notice, Sale, TaskRun


class BidInline(admin.TabularInline):
    model = Bid
    extra = 0


@admin.register(Sale)
class SaleAdmin(admin.ModelAdmin):
    list_display = ("name", "seller", "kind", "state", "opens_at", "closes_at", "winning_bid")
    list_filter = ("state", "kind")
    search_fields = ("name", "seller__username")
    date_hierarchy = "opens_at"
    inlines = (BidInline,)
    raw_id_fields = ("seller", "winning_bid", "watchers")
    list_select_related = ("seller", "winning_bid__bidder")


@admin.register(Notice)
class NoticeAdmin(admin.ModelAdmin):
    list_display = ("at", "kind", "player", "sale", "read")
    list_filter = ("kind", "read")
    list_select_related = ("player", "sale")


@admin.register(TaskRun)
class TaskRunAdmin(admin.ModelAdmin):
    list_display = ("started", "task", "subject", "attempt", "outcome", "lateness", "job_id")
    list_filter = ("task", "outcome", "recovered")
    search_fields = ("job_id", "subject")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
