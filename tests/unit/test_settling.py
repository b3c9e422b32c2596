"""Settling: everybody is told of every outcome that Redis has, whatever goes wrong with telling of one."""

import logging
import struct
from typing import Any

import pytest

from django_delayq.emitter import emitter
from django_delayq.outcome import Ending, Outcome
from django_delayq.settling import settle, tell_all
from django_delayq.signals import job_finished
from django_delayq.tally import ALL, WIDTH, Figures, Tally, packed
from tests.claims import numbered

FAILED = Outcome(ending=Ending.FAILED, error="ValueError: no")


def test_a_filter_that_raises_keeps_nobody_from_hearing_of_any(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    claims = [numbered(number << 150) for number in range(1, 5)]
    heard, tally = [], Tally()

    def hear(job_id: str, **_: Any) -> None:
        heard.append(job_id)

    def broken(record: logging.LogRecord) -> bool:
        if "lease lost" not in record.msg:
            raise RuntimeError("this filter is broken")
        return True

    logger = logging.getLogger("django_delayq")
    logger.addFilter(broken)
    job_finished.connect(hear)
    try:
        settled = [(settle(each, FAILED, worker="w"), FAILED) for each in claims]
        tell_all(settled, lost=frozenset([claims[1].lease]), tally=tally)
        assert emitter.flush()
    finally:
        job_finished.disconnect(hear)
        logger.removeFilter(broken)
    assert heard == [claims[0].id, claims[2].id, claims[3].id]
    assert Figures.of(struct.unpack(f">{WIDTH}I", packed(tally.take())[ALL])).retried == 3
    assert "lease lost" in caplog.text
