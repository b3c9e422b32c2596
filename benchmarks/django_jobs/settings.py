"""Django settings of the project. A new user's are as the documentation of each system shows them."""

import json
import os
from typing import Any

SYSTEM, URL = os.environ["BENCH_SYSTEM"], os.environ["BENCH_URL"]
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
APPS = {
    "delayq": ["django_delayq"],
    "django_q2": ["django_q"],
    "dramatiq": ["django_dramatiq"],
    "huey": ["huey.contrib.djhuey"],
    "rq": ["django_rq"],
}

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [*APPS.get(SYSTEM, []), "benchmarks.django_jobs"]
DATABASES: dict[str, Any] = {"default": json.loads(os.environ["BENCH_DATABASE"])}
if TUNED:
    # Django closes a connection after each request or job by default.
    DATABASES["default"]["CONN_MAX_AGE"] = None
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "root": {"level": "WARNING"},
        "loggers": {"django_delayq": {"level": "WARNING"}},
    }

DELAYQ = {"REDIS": URL}

CELERY_BROKER_URL = URL
if TUNED:
    # By default Celery closes the connection after each task, whatever Django's setting is.
    CELERY_DB_REUSE_MAX = 1_000_000
    CELERY_TASK_IGNORE_RESULT = True
    CELERY_WORKER_PREFETCH_MULTIPLIER = 128
    CELERY_WORKER_DISABLE_RATE_LIMITS = True
    CELERY_WORKER_SEND_TASK_EVENTS = False
    CELERY_WORKER_ENABLE_REMOTE_CONTROL = False

_MIDDLEWARE = "AgeLimit TimeLimit Callbacks Retries"
DRAMATIQ_BROKER = {
    "BROKER": "dramatiq.brokers.redis.RedisBroker",
    "OPTIONS": {"url": URL},
    "MIDDLEWARE": [
        *([] if TUNED else [f"dramatiq.middleware.{name}" for name in _MIDDLEWARE.split()]),
        "django_dramatiq.middleware.DbConnectionsMiddleware",
        *([] if TUNED else ["django_dramatiq.middleware.AdminMiddleware"]),
    ],
}

HUEY: dict[str, Any] = {
    "huey_class": "huey.RedisHuey",
    "name": "benchmarks",
    "url": URL,
    "immediate": False,
    "consumer": {"workers": 8, "worker_type": "thread"},
}
if TUNED:
    HUEY |= {"results": False}
    HUEY["consumer"] |= {"periodic": False, "check_worker_health": False}

RQ_QUEUES = {"default": {"URL": URL}}
if TUNED:
    RQ = {"DEFAULT_RESULT_TTL": 0}

Q_CLUSTER = {"redis": URL, "workers": 8, "timeout": 60, "retry": 120}
if TUNED:
    Q_CLUSTER |= {"save_limit": -1, "recycle": 1_000_000, "queue_limit": 1_000, "log_level": "WARNING"}
