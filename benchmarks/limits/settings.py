"""Django settings of the dispatcher and the workers."""

import os

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_delayq"]
DELAYQ = {
    "REDIS": os.environ["BENCH_URL"],
    "TASK_MODULES": ["benchmarks.limits.tasks"],
    "LEASE": 5,
    "LIMITS": {
        "rate": {"rate": "100/s", "burst": 20},
        "values": {"rate": "30/m", "burst": 1},
        "running": {"max_running": 3},
    },
}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "ERROR"}}
LOGGING["loggers"] = {"django_delayq": {"level": "ERROR"}}
