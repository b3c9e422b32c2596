"""The project with Grappelli, which has no dark mode."""

from tests.admin.settings import *  # noqa: F403
from tests.admin.settings import INSTALLED_APPS

INSTALLED_APPS = ["grappelli", *INSTALLED_APPS]
