"""Django settings for the systems that need them; BENCH_APP is the system's app."""

import os
from pathlib import Path

from benchmarks.peer_runtime.client_time import record_client_time

if "BENCH_ACCOUNT" in os.environ:
    record_client_time(os.environ["BENCH_ACCOUNT"])

TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
URL = os.environ["BENCH_URL"]

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = [os.environ["BENCH_APP"]]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(os.environ["BENCH_RUN_RECORD"]).with_name("db.sqlite3"),
    }
}
if os.environ["BENCH_CONFIGURATION"] != "default":
    # By default each system prints what a new user sees: `run_worker`, up to ten lines of jobs a second.
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "root": {"level": "WARNING"},
        "loggers": {"django_delayq": {"level": "WARNING"}},
    }

DELAYQ = {"REDIS": URL, "TASK_MODULES": ["benchmarks.peers.delayq"]}
TASKS = {"default": {"BACKEND": "django_tasks_redis.RedisTaskBackend", "OPTIONS": {"REDIS_URL": URL}}}
Q_CLUSTER = {
    "redis": URL,
    "workers": int(os.environ.get("BENCH_PROCESSES", "1")),
    "timeout": 60,
    "retry": 120,
}
if TUNED:
    # Store no results, never restart workers, and keep the queue in front of them from running empty.
    Q_CLUSTER |= {"save_limit": -1, "recycle": 1_000_000, "queue_limit": 1_000, "log_level": "WARNING"}
