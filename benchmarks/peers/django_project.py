"""The Django project of the systems that need one; BENCH_APP names the one that is installed."""

import os
from pathlib import Path

from benchmarks.peers.client_time import keep

if "BENCH_ACCOUNT" in os.environ:
    keep(os.environ["BENCH_ACCOUNT"])

TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
URL = os.environ["BENCH_URL"]

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = [os.environ["BENCH_APP"]]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(os.environ["BENCH_LEDGER"]).with_name("db.sqlite3"),
    }
}
# Alike for all: a line a job on the terminal would be measured too, which `run_worker` prints where nobody else logs.
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
    "log_level": "WARNING",
}
if TUNED:
    # No rows of results, workers that live on, a queue in front of them that is never empty.
    Q_CLUSTER |= {"save_limit": -1, "recycle": 1_000_000, "queue_limit": 1_000}
