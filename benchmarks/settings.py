"""The Django project of the benchmarks; its Redis is named by DELAYQ_BENCH_REDIS."""

import os

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_delayq"]
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"django_delayq": {"level": "WARNING"}}}
DELAYQ = {
    "REDIS": os.environ.get("DELAYQ_BENCH_REDIS", "unix:///nonexistent/redis.sock"),
    "TASK_MODULES": ["benchmarks.tasks"],
}
