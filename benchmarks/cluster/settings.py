"""Django settings of the processes."""

import os

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_delayq"]
DELAYQ = {
    "REDIS": os.environ["BENCH_URL"],
    "SHARDS": int(os.environ.get("BENCH_SHARDS", "12")),
    "TASK_MODULES": ["benchmarks.cluster.tasks"],
}
if lease := os.environ.get("BENCH_LEASE"):
    DELAYQ["LEASE"] = int(lease)
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "ERROR"}}
LOGGING["loggers"] = {"django_delayq": {"level": "ERROR"}}
