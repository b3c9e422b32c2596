"""The Django project of the processes that tests start; tests/admin/settings.py adds the admin for pytest itself.

It has no users: importing Django's would be an eighth of what each process costs to start.

tests/conftest.py sets DELAYQ_TEST_REDIS to its private server, so that these processes use the same one. Without it
nothing listens: a test that lacks the fixture fails and never reaches another server.
"""

import os

import django

SECRET_KEY = "only-for-tests"
USE_TZ = True
INSTALLED_APPS = [
    "django_delayq",
    "tests.sample_app",
    # The backport of what Django 6 contains.
    *(["django_tasks"] if django.VERSION < (6,) else []),
]
# Two, for commits that wait for several connections.
DATABASES = {
    alias: {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get(f"DELAYQ_TEST_DB_{alias.upper()}", ":memory:"),
    }
    for alias in ("default", "other")
}
DELAYQ = {"REDIS": os.environ.get("DELAYQ_TEST_REDIS", "unix:///nonexistent/redis.sock")}
#: The two aliases that most tests need. Tests of the backend change them.
TASKS = {alias: {"BACKEND": "django_delayq.backend.DelayQBackend", "QUEUES": []} for alias in ("default", "second")}
