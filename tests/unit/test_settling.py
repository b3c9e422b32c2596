"""Settling: everybody is told of every outcome that Redis has, whatever goes wrong with telling of one."""

import logging
import struct
from typing import Any

import pytest

from django_delayq.outcome import Ending, Outcome
from django_delayq.settling import settle, tell_all
from django_delayq.signals import job_finished
from django_delayq.tally import ALL, WIDTH, Figures, Tally, packed
from tests.claims import numbered

FAILED = Outcome(ending=Ending.FAILED, error="ValueError: no")


def test_one_that_cannot_be_told_of_keeps_nobody_from_hearing_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    claims = [numbered(number << 150) for number in range(1, 5)]
    heard, tally = [], Tally()

    def hear(job_id: str, **_: Any) -> None:
        heard.append(job_id)

    def broken(record: logging.LogRecord) -> bool:
        assert record.args
        if record.args[0] != claims[2].id and "lease lost" not in record.msg:
            raise RuntimeError(f"this filter is broken at {record.args[0]}")
        return True

    logger = logging.getLogger("django_delayq")
    logger.addFilter(broken)
    job_finished.connect(hear)
    try:
        settled = ((settle(each, FAILED, worker="w"), FAILED) for each in claims)
        with pytest.raises(RuntimeError, match=claims[0].id) as caught:
            tell_all(settled, lost=frozenset([claims[1].lease]), tally=tally)
    finally:
        job_finished.disconnect(hear)
        logger.removeFilter(broken)
    assert heard == [claims[2].id]
    # Of 256 that fail alike one is told of.
    assert caught.value.__context__ is None
    assert Figures.of(struct.unpack(f">{WIDTH}I", packed(tally.take())[ALL])).retried == 3
    assert "lease lost" in caplog.text
