"""The project with Unfold, whose dark mode is a class."""

from tests.admin.settings import *  # noqa: F403
from tests.admin.settings import INSTALLED_APPS

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
UNFOLD = {"SITE_TITLE": "Shop"}
