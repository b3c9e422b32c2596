"""Every address of the example: the market at the root, Django's admin beside it."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("market.urls")),
]
