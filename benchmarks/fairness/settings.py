"""Django settings of the dispatcher and the workers."""

import os

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_delayq"]
DELAYQ = {
    "REDIS": os.environ["BENCH_URL"],
    "TASK_MODULES": ["benchmarks.fairness.tasks"],
    "LEASE": 5,
    "QUEUES": {"mail": {"fair": True, "weights": {"heavy": 3}}, "default": {}},
}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "ERROR"}}
LOGGING["loggers"] = {"django_delayq": {"level": "ERROR"}}
