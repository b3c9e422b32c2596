"""The form of a recurring schedule: what it shows, what it changes, and which errors it shows where."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.clock import moment
from django_delayq.display.text import printable
from django_delayq.recurring.cron import Cron
from django_delayq.recurring.schedule import Schedule
from django_delayq.testing.fake_clock import FakeClock
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import NOOP
from tests.admin.page_content import text
from tests.admin.schedule_records import add_schedule, plant, schedules_of, stored
from tests.admin.schedules.conftest import NOW_US
from tests.admin.schedules.test_actions import press, waiting_jobs
from tests.admin.steps import confirm, result
from tests.shard_apis import DAY, HOUR, ShardApis

NAME = f"morning of {NOOP}"


def schedule_of(apis: ShardApis, text_id: str) -> Schedule:
    """Return a schedule as it is stored."""
    found = stored(apis, text_id)
    assert found is not None
    assert found.definition is not None
    return found.definition.schedule


def fields_of(response: Any) -> dict[str, str]:
    """Return the fields of the form with their values."""
    return dict(form_to(response, "/action/").fields)


def errors_of(response: Any) -> dict[str, str]:
    """Return the errors of a page: name of the field, "" for none -> text."""
    html = response.content.decode()
    found = {"": " ".join(re.findall(r'<ul class="errorlist nonfield"[^>]*><li>(.*?)</li>', html))}
    for error, name in re.findall(r'<div role="alert"><ul.*?><li>(.*?)</li></ul></div>\s*<\w+[^>]* name="(\w+)"', html):
        found[name] = error
    return {name: error for name, error in found.items() if error}


def test_the_form_has_the_schedule_as_it_is(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(
        stock,
        cron="0 9 * * mon-fri",
        tz="Asia/Tokyo",
        end=moment(NOW_US + DAY),
        jitter=90,
        overlap="wait",
        catch_up="all",
        window=5_400,
        pause_after=3,
    )
    response = press(browser, text_id, "edit_schedule")
    assert f"Edit the schedule {NAME}" in text(response)
    assert "Times are in Europe/Berlin." in text(response)
    shown = fields_of(response)
    assert {name: shown[name] for name in shown if name not in ("csrfmiddlewaretoken", "version")} == {
        "action": "edit_schedule",
        "schedule": text_id,
        "confirmed": "yes",
        "every": "",
        "cron": "0 9 * * mon-fri",
        "tz": "Asia/Tokyo",
        "end": "2027-01-05T10:30:00",
        "jitter": "1m30s",
        "overlap": "wait",
        "catch_up": "all",
        "window": "1h30m",
        "pause_after": "3",
    }
    other = add_schedule(stock, "often", every=90_061)
    shown = fields_of(press(browser, other, "edit_schedule"))
    assert (shown["every"], shown["cron"], shown["tz"], shown["overlap"]) == ("1d1h1m1s", "", "", "skip")


def test_a_schedule_is_changed(browser: Client, stock: ShardApis) -> None:
    start = datetime(2027, 1, 1, 0, 0, 7, tzinfo=UTC)
    text_id = add_schedule(stock, args=["kept"], kwargs={"token": "kept, too"}, start=start)
    plant(stock)
    old = stored(stock, text_id)
    asked = press(browser, text_id, "edit_schedule")
    assert "kept" not in asked.content.decode()
    done = confirm(browser, asked, every="10 m", jitter="5s", overlap="wait", pause_after="7", end="2027-02-01T00:00")
    assert done.url == page("recurring_schedule", text_id)
    assert f"Changed the schedule {NAME}: every 1 h → every 10 min" in result(browser, done)
    new = stored(stock, text_id)
    assert new.definition.job == old.definition.job
    schedule = new.definition.schedule
    assert schedule == Schedule(
        name="morning",
        rule=schedule.rule,
        start_us=old.definition.schedule.start_us,
        end_us=schedule.end_us,
        jitter_us=5_000_000,
        overlap="wait",
        pause_after=7,
    )
    assert schedule.rule.text == f"every 600 from {int(start.timestamp())}"
    assert moment(schedule.end_us or 0).isoformat() == "2027-01-31T23:00:00+00:00"
    # Its job was one of the old rule.
    assert waiting_jobs(stock) == []
    assert plant(stock) == 1
    [entry] = LogEntry.objects.all()
    assert entry.change_message == (
        f"Changed the schedule {NAME}: every 1 h → every 10 min, end none → 2027-01-31 23:00:00+00:00, "
        "jitter none → 5s, overlap skip → wait, pause_after none → 7"
    )


def test_cron_fields_take_the_time_zone_of_the_project(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    asked = press(browser, text_id, "edit_schedule")
    assert confirm(browser, asked, every="", cron=" 0  9 * * * ").status_code == 302
    rule = schedule_of(stock, text_id).rule
    assert isinstance(rule, Cron)
    assert (rule.fields, rule.zone.key) == ("0 9 * * *", "Europe/Berlin")
    asked = press(browser, text_id, "edit_schedule")
    assert confirm(browser, asked, tz="America/New_York", catch_up="none", window="10m").status_code == 302
    schedule = schedule_of(stock, text_id)
    assert (schedule.rule.text, schedule.window_us) == ("0 9 * * * in America/New_York", HOUR // 6)


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"every": "soon"}, {"every": "&#x27;soon&#x27; is no time: use 10m, 1h30m or 2d"}),
        ({"every": "0s"}, {"every": "every=0 must be whole seconds, at least 1"}),
        ({"every": "500ms"}, {"every": "every=0.5 must be whole seconds, at least 1"}),
        ({"every": ""}, {"": "a schedule needs either every= or cron="}),
        ({"cron": "0 9 * * *"}, {"": "a schedule needs either every= or cron="}),
        ({"every": "", "cron": "0 9 * *"}, {"cron": "cron=&#x27;0 9 * *&#x27; cannot be read"}),
        ({"every": "", "cron": "0 0 30 2 *"}, {"cron": "cannot be read (bad day-of-month)"}),
        ({"every": "", "cron": "0 9 * * *", "tz": "Europe/Berlln"}, {"tz": "did you mean &#x27;Europe/Berlin&#x27;?"}),
        ({"tz": "Europe/Berlin"}, {"tz": "tz= is for cron="}),
        ({"jitter": "1h"}, {"jitter": "jitter=3600 must be shorter than the shortest time between two occurrences"}),
        ({"jitter": "-1s"}, {"jitter": "is no time"}),
        ({"jitter": "9" * 90 + "d"}, {"jitter": "is too long"}),
        ({"end": "2027-01-01T00:00"}, {"end": "is not after now"}),
        ({"end": "2027-01-04T10:45"}, {"": "the schedule has no occurrence before its end"}),
        ({"end": "yesterday"}, {"end": "Enter a valid date/time."}),
        ({"window": "1h"}, {"window": "window= is for catch_up="}),
        ({"catch_up": "all"}, {"catch_up": "catch_up=&#x27;all&#x27; needs overlap="}),
        ({"overlap": "queue"}, {"overlap": "Select a valid choice."}),
        ({"pause_after": "0"}, {"pause_after": "greater than or equal to 1"}),
        ({"pause_after": "256"}, {"pause_after": "less than or equal to 255"}),
        ({"every": "", "cron": "<script>alert(1)</script>"}, {"cron": "&lt;script&gt;"}),
        ({"every": "", "cron": "\u202e * * * *"}, {"cron": "cannot be read"}),
    ],
)
def test_an_error_is_shown_at_its_field(
    changes: dict[str, str], errors: dict[str, str], browser: Client, stock: ShardApis
) -> None:
    text_id = add_schedule(stock)
    before = stored(stock, text_id)
    response = confirm(browser, press(browser, text_id, "edit_schedule"), **changes)
    assert response.status_code == 200
    found = errors_of(response)
    assert list(found) == list(errors)
    for name, words in errors.items():
        assert words in found[name]
    # What was typed is still there.
    shown = fields_of(response)
    for name in changes.keys() - {"overlap", "end"}:
        assert shown[name] == printable(changes[name])
    assert stored(stock, text_id) == before
    assert LogEntry.objects.count() == 0
    assert (
        confirm(
            browser,
            response,
            **{"cron": "", "tz": "", "every": "2h", "jitter": "", "end": "", "window": ""},
            **{"overlap": "skip", "catch_up": "last", "pause_after": ""},
        ).status_code
        == 302
    )
    assert schedule_of(stock, text_id).rule.text == "every 7200 from 0"


def test_nothing_changes_if_nothing_was_changed(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, cron="0 9 * * *", tz="Asia/Tokyo", jitter=90, catch_up="none", window=60)
    plant(stock)
    before = stored(stock, text_id)
    response = confirm(browser, press(browser, text_id, "edit_schedule"))
    assert f"Nothing in the schedule {NAME} was changed." in result(browser, response)
    assert stored(stock, text_id) == before
    assert len(waiting_jobs(stock)) == 1
    assert LogEntry.objects.count() == 0


def test_a_change_of_somebody_else_is_not_overwritten(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    asked = press(browser, text_id, "edit_schedule")
    stock.clock.advance(1_000_000)
    add_schedule(stock, every=600)
    response = confirm(browser, asked, every="2h")
    assert "The schedule was changed meanwhile. Nothing was done." in errors_of(response)[""]
    assert schedule_of(stock, text_id).rule.text == "every 600 from 0"
    assert fields_of(response)["version"] == fields_of(asked)["version"]
    for version in ("", "x", "9" * 30):
        assert confirm(browser, asked, every="2h", version=version).status_code == 200
    assert schedule_of(stock, text_id).rule.text == "every 600 from 0"


def test_a_paused_one_stays_paused(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    schedules_of(stock).pause_schedule(stored(stock, text_id).id)
    assert confirm(browser, press(browser, text_id, "edit_schedule"), every="2h").status_code == 302
    assert stored(stock, text_id).is_paused
    assert plant(stock) == 0


def test_a_schedule_of_an_unknown_task_can_be_edited(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, task="old.removed", args=["4111"])
    assert confirm(browser, press(browser, text_id, "edit_schedule"), every="2h").status_code == 302
    found = stored(stock, text_id)
    assert (found.definition.job.args, found.definition.schedule.rule.text) == (["4111"], "every 7200 from 0")


def test_an_encrypted_and_signed_one_stays_so(
    browser: Client, clock: FakeClock, delayq_settings: Any, redis_url: str
) -> None:
    options = {"ENCRYPT": True, "SIGN": True}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, **options}
    apis = ShardApis(redis_url, clock=clock, **options)
    text_id = add_schedule(apis, args=["4111"])
    assert confirm(browser, press(browser, text_id, "edit_schedule"), every="2h").status_code == 302
    found = stored(apis, text_id)
    assert (found.definition.job.args, found.definition.schedule.rule.text) == (["4111"], "every 7200 from 0")
    assert b"7200" not in found.record.definition and b"4111" not in found.record.definition
    apis.close()
    # Without the key nobody reads it.
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ENCRYPTION_KEYS": ["another secret of this project, 32+"]}
    assert "The schedule cannot be read." in text(browser.get(page("recurring_schedule", text_id)))
