"""The URLs of the example: Django's admin at admin/, the market everywhere else."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("market.urls")),
]
