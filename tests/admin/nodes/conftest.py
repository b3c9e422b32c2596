"""Fixtures of pages over a cluster of three masters, which starts once for each module."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.lost_master import SHARDS, ThreeMasters, three_masters


@pytest.fixture(scope="module")
def masters(server_program: Path) -> Iterator[ThreeMasters]:
    """Three masters with two shards each."""
    with three_masters(server_program) as started:
        yield started


@pytest.fixture(autouse=True)
def _settings(masters: ThreeMasters, delayq_settings: Any) -> None:
    """Put them behind the pages and the API."""
    delayq_settings.DELAYQ = {"REDIS": masters.url, "SHARDS": SHARDS, "ENQUEUE_TIMEOUT": 1}
