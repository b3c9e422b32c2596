"""Django settings of the processes."""

import os

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_delayq"]
DELAYQ = {
    "REDIS": os.environ["BENCH_URL"],
    "SHARDS": 12,
    "TASK_MODULES": ["benchmarks.cluster.tasks"],
    "LEASE": 5,
}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "ERROR"}}
LOGGING["loggers"] = {"django_delayq": {"level": "ERROR"}}
