"""The project with Jazzmin, whose dark mode is an attribute of Bootstrap."""

from tests.admin.settings import *  # noqa: F403
from tests.admin.settings import INSTALLED_APPS

INSTALLED_APPS = ["jazzmin", *INSTALLED_APPS]
JAZZMIN_UI_TWEAKS = {"default_theme_mode": "auto"}
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
