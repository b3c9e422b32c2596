"""Rehearsal: the commands as processes on a private Redis, as tests start them, for what a test cannot assert in ms."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django_delayq.testing.local_redis import LocalRedisServer
from tests.subprocesses import Processes


class _Settings:
    """Settings of which DELAYQ can be changed."""

    def __getattr__(self, name: str) -> Any:
        from django.conf import settings

        return getattr(settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        from django.conf import settings

        from django_delayq.conf.settings import drop_config

        setattr(settings, name, value)
        drop_config()


@contextmanager
def rehearse(folder: Path) -> Iterator[Processes]:
    """Start a server and return what starts commands on it; this process can enqueue the tests' tasks."""
    with LocalRedisServer() as server:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "tests.settings", "DELAYQ_TEST_REDIS": server.url}
        import django

        django.setup()
        settings = _Settings()
        settings.DELAYQ = {"REDIS": server.url}
        with Processes(folder, settings) as processes:
            yield processes


def percentile(figures: Sequence[float], share: float) -> float:
    """Return the figure that so large a share of them does not exceed."""
    return sorted(figures)[math.ceil(share * len(figures)) - 1]
