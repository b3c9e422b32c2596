"""Two sites that carry the pages, the admin's own and one that a project made; and the figures."""

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.urls import include, path

from django_delayq.admin import register

second = AdminSite(name="second")
register(second)
urlpatterns = [
    path("admin/", admin.site.urls),
    path("second/", second.urls),
    path("delayq/", include("django_delayq.admin.urls")),
]
