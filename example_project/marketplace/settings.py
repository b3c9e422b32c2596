"""Settings of the example: a market whose sales open and close by delayed tasks. Not for production."""

import os
from importlib.util import find_spec
from pathlib import Path

import django

from marketplace.database import parse_database_url

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = os.environ.get("SECRET_KEY", "django-insecure-only-for-the-example-project")
DEBUG = os.environ.get("DEBUG", "1") == "1"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_delayq",
    # Django 6 includes the tasks framework.
    *(["django_tasks"] if django.VERSION < (6,) else []),
    "market",
]

# --- django_delayq: one line in INSTALLED_APPS and this -------------------------------------------------

DELAYQ = {
    "REDIS": os.environ.get("DELAYQ_REDIS_URL", "unix:///run/redis/redis-server.sock"),
    "PREFIX": os.environ.get("MARKET_PREFIX", "market"),
    # The demo sets 1, so that a killed worker's job is recovered soon.
    "LEASE": float(os.environ.get("MARKET_LEASE", 30)),
    # Workers import the tasks.py of every app; tasks in other modules must be named here.
    "TASK_MODULES": ["market.failing_tasks"],
}

#: Django's own @task runs on the same workers, and its results are stored.
TASKS = {"default": {"BACKEND": "django_delayq.backend.DelayQBackend", "QUEUES": ["letters"]}}

# --- The market ------------------------------------------------------------------------------------

#: Seconds between a reminder and its opening.
MARKET_REMINDER_LEAD = float(os.environ.get("MARKET_REMINDER_LEAD", 600))
#: Base of the retry delays of `failing_tasks`, in seconds.
MARKET_RETRY_BASE = float(os.environ.get("MARKET_RETRY_BASE", 2))
#: Players who can sign in without a password. Leave it empty on a public site.
MARKET_DEMO_PLAYERS = ["demo", "mira"] if os.environ.get("MARKET_DEMO") == "1" else []

# --- Django ----------------------------------------------------------------------------------------------

DATABASES = {"default": parse_database_url(os.environ.get("DATABASE_URL", f"sqlite:///{BASE_DIR}/db.sqlite3"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    # In a container no other server has the static files.
    *(["whitenoise.middleware.WhiteNoiseMiddleware"] if not DEBUG and find_spec("whitenoise") else []),
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "market.context.market",
            ],
        },
    },
]

ROOT_URLCONF = "marketplace.urls"
WSGI_APPLICATION = "marketplace.wsgi.application"
ASGI_APPLICATION = "marketplace.asgi.application"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "var" / "static"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "market"
LOGOUT_REDIRECT_URL = "market"
USE_TZ = True
TIME_ZONE = "UTC"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"django_delayq": {"handlers": ["console"], "level": os.environ.get("LOG_LEVEL", "INFO")}},
}
