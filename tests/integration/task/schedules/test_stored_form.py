"""The stored form: signed and encrypted as jobs are; what a process cannot read hurts no other schedule."""

import logging
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, reset_tzpath

import pytest

from django_delayq import get_store
from django_delayq.exceptions import BadSignature, InvalidSchedule
from django_delayq.job.security.signing import BodySigner
from django_delayq.recurring.cron import make_cron
from django_delayq.recurring.rule import read_rule
from django_delayq.recurring.schedule import Schedule
from django_delayq.store.schedules.definition import Definition, _read
from django_delayq.task.recurring.handle import ScheduleHandle
from django_delayq.testing import DelayQ
from tests.sample_app.tasks import noop
from tests.shard_apis import NINE

HOUR = timedelta(hours=1)
SECRETS = ["first-" * 10, "second-" * 10]


def use(settings: Any, **delayq: Any) -> None:
    """Use settings from now on, as after a restart."""
    settings.DELAYQ = {**settings.DELAYQ, **delayq}
    # Another process has not read what this one has.
    _read.cache_clear()


def stored(name: str = "a") -> bytes:
    found = noop.schedules.get(name)
    assert found
    return found._stored.record.definition


def found(name: str = "a") -> ScheduleHandle:
    handle = noop.schedules.get(name)
    assert handle
    return handle


@pytest.fixture
def keys(settings: Any) -> None:
    """Sign and encrypt by the first secret."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = SECRETS[0], []
    use(settings, SIGN=True, ENCRYPT=True, ENCRYPTION_KEYS=[SECRETS[0]])


@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("sign", [False, True])
def test_a_schedule_is_stored_as_the_settings_say(delayq: DelayQ, settings: Any, sign: bool, encrypt: bool) -> None:
    use(settings, SIGN=sign, ENCRYPT=encrypt, ENCRYPTION_KEYS=[SECRETS[0]])
    # Also a definition whose length begins with the byte of encrypted texts.
    name = "n" * 200
    noop.schedules.set(name, cron="0,15,30,45 * * * *", tz="America/Argentina/Buenos_Aires", args=["canary"])
    assert 256 <= len(Schedule.pack(found(name)._definition.schedule)) < 512
    assert (b"canary" in stored(name), stored(name)[0] >= 0x80) == (not encrypt, sign)
    [ran, *_] = delayq.advance(hours=1, run=True)
    assert ran.args == ["canary"]
    delayq.advance(minutes=2, run=True)
    [waiting] = delayq.enqueued
    before = stored(name)
    noop.schedules.set(name, cron="0,15,30,45 * * * *", tz="America/Argentina/Buenos_Aires", args=["canary"])
    assert stored(name) == before and [job.id for job in delayq.enqueued] == [waiting.id]
    noop.schedules.set(name, cron="0,15,30,45 * * * *", tz="America/Argentina/Buenos_Aires", args=["other"])
    assert stored(name) != before and [run.args for run in delayq.advance(minutes=15, run=True)] == [["other"]]


@pytest.mark.usefixtures("keys")
def test_with_a_new_secret_a_schedule_that_is_set_again_is_stored_by_it(delayq: DelayQ, settings: Any) -> None:
    noop.schedules.set_many({"name": name, "every": HOUR, "args": [name]} for name in "ab")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = SECRETS[1], [SECRETS[0]]
    use(settings, ENCRYPTION_KEYS=SECRETS[::-1])
    assert len(delayq.advance(hours=1, run=True)) == 2
    noop.schedules.set("a", every=HOUR, args=["a"])
    settings.SECRET_KEY_FALLBACKS = []
    use(settings, ENCRYPTION_KEYS=[SECRETS[1]])
    assert [run.args for run in delayq.advance(hours=2, run=True, errors="retry") if run.schedule] == [["a"]] * 2
    assert found("b").fault


@pytest.mark.usefixtures("keys")
def test_a_forged_definition_is_not_planted(delayq: DelayQ, settings: Any) -> None:
    use(settings, ENCRYPT=False)
    noop.schedules.set_many({"name": name, "every": HOUR, "args": [name]} for name in "ab")
    use(settings, SIGN=False)
    noop.schedules.set("a", every=HOUR, args=["forged"])
    use(settings, SIGN=True)
    assert [run.args for run in delayq.advance(hours=1, run=True)] == [["b"]]
    assert "not signed" in (found("a").fault or "")


@pytest.mark.usefixtures("keys")
def test_no_signed_definition_is_the_body_of_a_job_or_the_reverse(delayq: DelayQ, settings: Any) -> None:
    use(settings, ENCRYPT=False)
    store = get_store()
    definition = replace(noop.schedules.define({"name": "a", "every": HOUR}), cost=0x8181)
    # A signature covers the id and what follows it, and the id of a job has four bytes more.
    signed = definition.id + definition.pack(signer=store.signer, cipher=store.cipher)
    with pytest.raises(BadSignature, match="is not signed"):
        store.signer.verify(signed[:12], signed[12:])
    body = store.signer.sign(b"first 8 \x81end", definition.pack(signer=BodySigner(on=False), cipher=store.cipher))
    signed = b"first 8 \x81end" + body
    with pytest.raises(InvalidSchedule, match="it is no definition of a schedule"):
        Definition.unpack(signed[8:], id=signed[:8], shard=0, signer=store.signer, cipher=store.cipher)


class Lunar:
    """A rule of a later release."""

    text, least_distance_us = "lunar 3", 1_000_000

    def next_after(self, moment_us: int) -> int | None:
        return moment_us + 1_000_000


def set_by_a_later_release(name: str, **changes: Any) -> None:
    definition = noop.schedules.define({"name": name, "every": HOUR})
    later = replace(definition, schedule=replace(definition.schedule, **changes), body=b"")
    get_store().schedules(0).set_schedules([later])


def test_a_rule_of_a_later_release_pauses_its_schedule_alone(delayq: DelayQ, caplog: pytest.LogCaptureFixture) -> None:
    noop.schedules.set_many({"name": str(number), "every": HOUR} for number in range(5))
    noop.schedules.set("later", every=HOUR)
    set_by_a_later_release("later", rule=Lunar())
    with caplog.at_level(logging.ERROR):
        ran = delayq.advance(hours=2, run=True)
    assert {run.schedule for run in ran} == {"0", "1", "2", "3", "4"} and len(ran) == 10
    lines = [line for line in caplog.messages if "is not planted" in line]
    assert len(lines) == 1 and "this release cannot read the rule 'lunar 3'" in lines[0]
    handle = found("later")
    assert handle.fault and "lunar 3" in handle.fault and handle._stored.is_unreadable
    assert repr(handle) == f"<ScheduleHandle {handle._stored.text_id} unreadable>"
    for read in (lambda: handle.name, lambda: handle.task, handle.next, handle.run_now):
        with pytest.raises(InvalidSchedule, match="lunar 3"):
            read()
    assert "later" not in {each.name for each in noop.schedules.iter()}
    assert (handle.pause(), handle.resume(), handle.is_paused) == (True, True, False)
    noop.schedules.set("later", every=HOUR)
    assert found("later").fault is None
    assert "later" in {run.schedule for run in delayq.advance(hours=1, run=True)}
    assert not found("later")._stored.is_unreadable
    set_by_a_later_release("later", rule=Lunar())
    assert noop.schedules.delete("later") == 1


def test_what_a_process_cannot_read_is_planted_by_one_that_can(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    noop.schedules.set("a", cron="0 * * * *", tz="UTC")
    noop.schedules.set("b", every=HOUR)
    with monkeypatch.context() as without_cronsim:
        for cached in (make_cron, read_rule, _read):
            cached.cache_clear()
        without_cronsim.setitem(sys.modules, "cronsim", None)
        assert [run.schedule for run in delayq.advance(hours=1, run=True)] == ["b"]
        assert "needs the package cronsim" in (found("a").fault or "")
        assert [each.name for each in noop.schedules.iter()] == ["b"]
    ran = {(run.schedule, run.occurrence) for run in delayq.advance(hours=1, run=True)}
    assert ran == {("a", NINE + HOUR), ("a", NINE + 2 * HOUR), ("b", NINE + 2 * HOUR)}, "the missed one was caught up"


def test_the_largest_arguments_are_planted_even_if_fewer_are_allowed_by_then(delayq: DelayQ, settings: Any) -> None:
    use(settings, MAX_PAYLOAD=2_000)
    largest = "x" * (2_000 - len('[[""]]'))
    noop.schedules.set("n" * 200, every=HOUR, args=[largest])
    noop.schedules.set("b", every=HOUR)
    use(settings, MAX_PAYLOAD=1_024)
    assert len(delayq.advance(hours=1, run=True)) == 2
    job = found("n" * 200).run_now()
    assert [run.id for run in delayq.run_due()] == [job.id]
    with pytest.raises(ValueError, match="MAX_PAYLOAD"):
        noop.schedules.set("n" * 200, every=HOUR, args=[largest])


@pytest.fixture
def set_clocks(tmp_path: Path, settings: Any) -> Iterator[Callable[[timedelta], None]]:
    """Set the distance of the time zone Sea/Island to UTC, as after a restart with new data of time zones."""
    path = tmp_path / "Sea" / "Island"
    path.parent.mkdir()
    reset_tzpath([str(tmp_path)])

    def change(distance: timedelta) -> None:
        # The file format of RFC 8536: one type of local time, and no change of it.
        head = struct.pack(">4s16x6I", b"TZif", 0, 0, 0, 0, 1, 4)
        path.write_bytes(head + struct.pack(">iBB", distance // timedelta(seconds=1), 0, 0) + b"SIT\0")
        ZoneInfo.clear_cache()
        read_rule.cache_clear()
        use(settings)

    yield change
    reset_tzpath()
    ZoneInfo.clear_cache()


def test_new_data_of_time_zones_count_after_the_waiting_job(
    delayq: DelayQ, set_clocks: Callable[[timedelta], None]
) -> None:
    set_clocks(HOUR)
    noop.schedules.set("a", cron="0 12 * * *", tz="Sea/Island")
    delayq.run_due()
    set_clocks(9 * HOUR)
    ran = delayq.advance(days=2, run=True)
    assert [run.occurrence for run in ran] == [NINE + 2 * HOUR, NINE + 18 * HOUR, NINE + 42 * HOUR]
