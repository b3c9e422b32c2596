"""The page of one recurring schedule: its rule, its next and its last jobs, what is hidden, and what was done to it."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq import delayed_task
from django_delayq.clock import moment
from django_delayq.display.arguments import DOTS
from django_delayq.job.ids import to_text
from django_delayq.job.outcome import Action
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.schedules.stored_schedule import DECLARED, PAUSED, UNREADABLE
from tests.admin.conftest import page
from tests.admin.jobs import NOOP
from tests.admin.page_content import link, text
from tests.admin.schedule_records import add_schedule, change_record, done, plant, rewrite, schedules_of, stored
from tests.admin.schedules.conftest import NOW_US
from tests.shard_apis import DAY, HOUR, ShardApis, settlement

GONE = "0123456789abcdef-0"


def section(response: Any, heading: str) -> str:
    """Return the text of a section of the page."""
    assert response.status_code == 200
    for part in response.content.decode().split("<section")[1:]:
        if f">{heading}</h2>" in part:
            return " ".join(re.sub(r"<[^>]*>", " ", "<" + part.split("</section>")[0]).split())
    raise AssertionError(heading)


def charge(card: str, amount: int, api_token: str) -> None: ...


def test_what_the_page_says(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(
        stock,
        "nightly",
        cron="30 3 * * *",
        tz="Europe/Berlin",
        jitter=600,
        overlap="wait",
        catch_up="all",
        window=7_200,
        end=moment(NOW_US + 5 * DAY),
        pause_after=4,
        queue="mail",
        job={"tenant": "acme", "context": {"language": "de", "token": "hidden"}},
        record={"failures": 1, "outcomes": [(RunOutcome.FAILED, 1_500)], "last_end_us": NOW_US - 7 * HOUR},
    )
    response = browser.get(page("recurring_schedule", text_id))
    said = text(response)
    assert "<h1>noop: nightly</h1>" in response.content.decode()
    for words in (
        f"Name nightly Task {NOOP} Rule 30 3 * * * (Europe/Berlin)",
        "Next job in 17 h 2027-01-05 03:3",
        "not enqueued yet",
        "Last job failed 1.5 s ended 7 h ago 03:30:00",
        "Failures in a row 1",
        "Jitter 10 min",
        "Overlap wait: the new job waits; further ones are skipped",
        "Catch up all: a job for each missed occurrence",
        "Window 2 h",
        "End 2027-01-09 10:30:00 CET",
        "Pauses after 4 failures in a row",
        "Queue mail",
        "Tenant acme",
        "&quot;language&quot;: &quot;de&quot;",
    ):
        assert words in said, words
    assert "hidden" not in said.replace("hidden values", "")
    assert "Start" not in said
    assert page("recurring_schedule", text_id) not in link(response, "nightly")


def test_the_next_ten_jobs(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, cron="0 9 * * *", tz="Europe/Berlin")
    found = section(browser.get(page("recurring_schedule", text_id)), "Next jobs")
    assert re.findall(r"2027-01-(\d\d) 09:00:00", found) == [f"{day:02}" for day in range(5, 15)]
    schedules_of(stock).pause_schedule(stored(stock, text_id).id)
    response = browser.get(page("recurring_schedule", text_id))
    assert section(response, "Next jobs, if it is resumed").count("09:00:00") == 10
    assert "Next job – " in text(response)


def test_the_last_outcomes_are_shown(browser: Client, stock: ShardApis) -> None:
    outcomes = [(RunOutcome.SKIPPED, 0), (RunOutcome.FAILED, 61_000), *done(*range(1, 19))]
    text_id = add_schedule(stock, record={"outcomes": outcomes, "last_end_us": NOW_US})
    found = section(browser.get(page("recurring_schedule", text_id)), "Last jobs")
    assert "# Outcome Took 1 skipped – 2 failed 61 s 3 done 1 ms 4 done 2 ms" in found
    assert "20 done 18 ms" in found
    new = add_schedule(stock, "new")
    assert "None has ended yet." in section(browser.get(page("recurring_schedule", new)), "Last jobs")


def test_the_waiting_and_the_running_job_are_linked(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    plant(stock)
    planted = stored(stock, text_id).planted
    response = browser.get(page("recurring_schedule", text_id))
    waiting = page("job_detail", to_text(planted, 0))
    assert f'href="{waiting}"' in response.content.decode()
    assert "Next job in 30 min 11:00:00 " in text(response)
    assert "Running job –" in text(response)
    stock.clock.advance(HOUR // 2)
    stock.promote()
    [claim] = stock.worker().take(1).claims
    response = browser.get(page("recurring_schedule", text_id))
    assert f'href="{waiting}"' in response.content.decode()
    assert "running" in text(response)
    # The page of the job leads back.
    job = browser.get(waiting)
    assert "Recurring schedule morning , for 11:00:00" in text(job)
    assert f'href="{page("recurring_schedule", text_id)}"' in job.content.decode()
    stock.worker().take(0, settle=[settlement(claim, Action.ACKNOWLEDGE)])
    assert f'href="{waiting}"' not in browser.get(page("recurring_schedule", text_id)).content.decode()


def test_sensitive_arguments_are_hidden_until_somebody_reveals_them(
    visitor: Callable[..., Client], stock: ShardApis, registered: Any
) -> None:
    registered({})
    delayed_task(name="shop.charge", sensitive=("card",))(charge)
    text_id = add_schedule(stock, task="shop.charge", args=["4111"], kwargs={"amount": 7, "api_token": "s3cret"})
    address, browser = page("recurring_schedule", text_id), visitor("viewer", "view_delayq_payload")
    response = browser.get(address)
    assert f"card {DOTS} amount 7 api_token {DOTS}" in section(response, "Arguments")
    assert "4111" not in response.content.decode() and "s3cret" not in response.content.decode()
    assert "Reveal" in section(response, "Arguments")
    revealed = browser.post(address)
    assert "&quot;4111&quot;" in section(revealed, "Arguments")
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.change_message, entry.user.username) == (text_id, "Revealed hidden values", "viewer")
    assert "viewer Revealed hidden values" in section(browser.get(address), "Activity")
    assert "Reveal" not in section(visitor("manager").get(address), "Arguments")
    assert visitor("manager").post(address).status_code == 403


def test_all_arguments_of_an_unknown_task_are_hidden(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, task="old.removed", args=["4111"])
    response = browser.get(page("recurring_schedule", text_id))
    assert "Unknown task. No task is registered here as old.removed. All arguments are hidden." in text(response)
    assert "4111" not in response.content.decode()


def test_long_arguments_are_cut(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, args=["x" * 20_000])
    response = browser.get(page("recurring_schedule", text_id))
    assert "x" * 8_100 in response.content.decode() and "x" * 9_000 not in response.content.decode()
    whole = browser.get(link(response, "Show all"))
    assert "x" * 20_000 in whole.content.decode()


def test_one_that_cannot_be_read_is_shown_with_the_reason(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, every=300, args=["4111"], record={"outcomes": done(1_000), "failures": 2})
    rewrite(stock, text_id, b"every 300", b"daily 300")
    response = browser.get(page("recurring_schedule", text_id))
    said = text(response)
    assert (
        "The schedule cannot be read. This release cannot read the schedule: this release cannot read the rule" in said
    )
    assert "None of its jobs is enqueued meanwhile." not in said
    assert "Failures in a row 2" in said
    assert "1 done 1.0 s" in section(response, "Last jobs")
    assert "4111" not in response.content.decode()
    assert "Reveal" not in said
    assert "4111" not in browser.post(page("recurring_schedule", text_id)).content.decode()
    for offered, action in ((True, "pause"), (True, "delete"), (False, "edit"), (False, "run")):
        assert (f'value="{action}_schedule"' in response.content.decode()) == offered


def test_one_that_only_the_dispatcher_cannot_read(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, record={"flags": UNREADABLE})
    said = text(browser.get(page("recurring_schedule", text_id)))
    assert "The schedule cannot be read. The dispatcher that looked at it last cannot read it." in said
    assert "None of its jobs is enqueued meanwhile." in said
    assert "Rule every 1 h" in said


def test_one_that_is_declared_in_code_is_edited_there(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, record={"flags": DECLARED})
    response = browser.get(page("recurring_schedule", text_id))
    assert "It is declared in code, so it is edited and deleted there." in text(response)
    for offered, action in ((True, "pause"), (True, "run"), (False, "edit"), (False, "delete")):
        assert (f'value="{action}_schedule"' in response.content.decode()) == offered


def test_one_that_failures_paused_says_so(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, pause_after=5, record={"flags": PAUSED, "failures": 5})
    response = browser.get(page("recurring_schedule", text_id))
    assert "Its jobs failed. It paused itself after 5 failures in a row." in text(response)
    assert link(response, "Failed jobs of its task") == page("failed", task=NOOP)
    change_record(stock, stored(stock, text_id).id, failures=0)
    assert "It paused itself" not in text(browser.get(page("recurring_schedule", text_id)))


@pytest.mark.parametrize(
    "text_id", [GONE, "0123456789abcdef-7", "0123456789abcdef-01", "x", "0123456789ABCDEF-0", "a b"]
)
def test_a_schedule_that_is_not_there(text_id: str, browser: Client, stock: ShardApis) -> None:
    response = browser.get(page("recurring_schedule", text_id))
    assert response.status_code == 404
    assert "No such recurring schedule" in text(response)
    assert page("recurring") in response.content.decode()


def test_moments_that_no_calendar_has(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, every=300, end=moment(NOW_US + DAY), jitter=60)
    rewrite(stock, text_id, b'"e":' + str(NOW_US + DAY).encode(), b'"e":' + b"9223372036854775807"[: len(str(NOW_US))])
    rewrite(stock, text_id, b'"j":60000000', b'"j":99999999')
    assert browser.get(page("recurring_schedule", text_id)).status_code == 200
    assert browser.get(page("recurring")).status_code == 200


def test_times_are_in_the_zone_of_the_reader(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, cron="0 9 * * *", tz="Asia/Tokyo")
    browser.cookies["delayq_zone"] = "utc"
    found = section(browser.get(page("recurring_schedule", text_id)), "Next jobs")
    assert found.count("00:00:00") == 10
    browser.cookies["delayq_zone"] = "America/New_York"
    found = section(browser.get(page("recurring_schedule", text_id)), "Next jobs")
    assert found.count("19:00:00") == 10
