"""Django settings of the client, the dispatcher and the workers."""

import os

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
INSTALLED_APPS = ["django_delayq"]
DELAYQ = {"REDIS": os.environ["BENCH_URL"], "TASK_MODULES": ["benchmarks.schedules.tasks"]}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "ERROR"}}
LOGGING["loggers"] = {"django_delayq": {"level": "ERROR"}}
