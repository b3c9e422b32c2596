"""The smallest Django project the suite needs, for pytest and for the commands that tests start as processes.

`tests/conftest.py` names its private server in DELAYQ_TEST_REDIS, so that these processes find the same one.
Without it nothing listens here: a test that forgot its fixture fails instead of meeting somebody's server.
"""

import os

import django

SECRET_KEY = "only-for-tests"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_delayq",
    "tests.sample_app",
    # What Django 6 has on board.
    *(["django_tasks"] if django.VERSION < (6,) else []),
]
# The second one is there for commits that wait for several connections.
DATABASES = {
    alias: {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get(f"DELAYQ_TEST_DB_{alias.upper()}", ":memory:"),
    }
    for alias in ("default", "other")
}
DELAYQ = {"REDIS": os.environ.get("DELAYQ_TEST_REDIS", "unix:///nonexistent/redis.sock")}
#: Aliases of the two that tests need; tests of the backend and their processes change it.
TASKS = {alias: {"BACKEND": "django_delayq.backend.DelayQBackend", "QUEUES": []} for alias in ("default", "second")}
