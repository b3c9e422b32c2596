"""The page of one job in any state: hidden values, attempts, neighbours."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.job.ids import from_text
from django_delayq.job.outcome import Action
from django_delayq.job.retry import RetryPolicy
from tests.admin.conftest import page
from tests.admin.forms import form_to, forms
from tests.admin.jobs import HOUR, POSTED, add, add_dead, claim
from tests.admin.page_content import job_link, link, text
from tests.shard_apis import ShardApis, uncounted


def test_a_job_is_shown_in_every_state(browser: Client, stock: ShardApis) -> None:
    scheduled, ready, running = (
        add(stock, 1),
        add(stock, 2, queue="r", delay=None),
        add(stock, 3, queue="c", delay=None),
    )
    claim(stock, running, queue="c")
    failed = add_dead(stock, 4)
    for text_id, state in ((scheduled, "Scheduled"), (ready, "Ready"), (running, "Running"), (failed, "Failed")):
        page_text = text(browser.get(page("job_detail", text_id)))
        assert f"{state} {text_id}" in page_text
        assert "tests.sample_app.tasks.noop" in page_text


def test_a_failed_job_shows_its_attempts_and_its_traceback(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, claimed = claim(stock, mine)
    worker.settle(claimed, Action.RETRY, error="first: failure")
    stock.promote()
    worker, claimed = claim(stock, mine)
    worker.settle(
        claimed, Action.DEAD_LETTER, error='Traceback:\n  File "a.py", line 1, in f\n    x\nValueError: <b>no</b>'
    )
    answer = browser.get(page("job_detail", mine))
    assert "1 1970" not in text(answer)
    assert "ValueError &lt;b&gt;no&lt;/b&gt;" in text(answer)
    assert "1 frame" in text(answer)
    assert "2/3" in text(answer)


def test_a_failed_job_shows_the_rules_that_it_died_by(browser: Client, stock: ShardApis) -> None:
    retry = RetryPolicy(delays=[5, 60, 600], retry_on="shop.errors.Busy", dead_on=ValueError)
    page_text = text(browser.get(page("job_detail", add_dead(stock, retry=retry))))
    assert (
        "Attempt 1/4 Retries up to 4 attempts, after 5 s, 1 min, 10 min; retries only shop.errors.Busy; " in page_text
    )
    assert "; fails at once on ValueError Created" in page_text
    forever = add(stock, retry=RetryPolicy(max_attempts=None, delays=[30]))
    page_text = text(browser.get(page("job_detail", forever)))
    assert "Attempt 1 Retries tried forever, after 30 s each time Created" in page_text


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ((None, None), "Retries up to 3 attempts, after random delays of up to 2 s, 4 s Created"),
        # By default 10 s after the timeout.
        ((150_000_000, None), "Timeout 2 min 30 s Hard timeout 2 min 40 s Size"),
        ((30_000_000, 60_000_000), "Timeout 30 s Hard timeout 1 min Size"),
        ((None, 60_000_000), "Created"),
    ],
)
def test_the_time_limits_of_a_job_are_shown(
    browser: Client, stock: ShardApis, limits: tuple[int | None, int | None], shown: str
) -> None:
    page_text = text(browser.get(page("job_detail", add(stock, limits_us=limits))))
    assert shown in page_text
    assert ("imeout" in page_text) == any(limits)


def test_a_job_that_waits_for_code_shows_why_and_since_when(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, claimed = claim(stock, mine)
    waits = claimed.attempts.waited("unknown task", now_us=claimed.claimed_us)
    worker.take(0, settle=[uncounted(claimed, waits, delay=HOUR)])
    page_text = text(browser.get(page("job_detail", mine)))
    assert "Waits for a worker that knows it. No worker could run the job so far (task not known)." in page_text
    assert "It began to wait" in page_text and "1/3" in page_text
    listed = browser.get(page("scheduled"))
    assert "1/3 waits" in text(listed)
    assert 'title="It waits for a worker that knows it. task not known"' in listed.content.decode()
    sent = b"".join(browser.get(page("export", "scheduled")).streaming_content)
    assert json.loads(sent)["waiting_for"] == "unknown task"


def test_what_is_no_attempt_is_shown_apart_from_the_attempts(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    assert not {"Snoozed", "Cut short"} & set(text(browser.get(page("job_detail", mine))).split())
    worker, claimed = claim(stock, mine)
    worker.take(0, settle=[uncounted(claimed, claimed.attempts.snoozed().cut_short().cut_short(), delay=HOUR)])
    page_text = text(browser.get(page("job_detail", mine)))
    assert "Snoozed 1 time Cut short 2 times by the stop of a worker" in page_text
    assert "Attempt 1/3" in page_text and "retry" not in page_text


def test_a_post_reveals_hidden_values_and_is_recorded(visitor: Callable[..., Client], stock: ShardApis) -> None:
    mine = add(stock, "seen", token="hidden-value")
    browser = visitor("viewer", "view_delayq_payload")
    answer = browser.get(page("job_detail", mine))
    assert "hidden-value" not in answer.content.decode()
    assert not LogEntry.objects.exists()
    revealed = form_to(answer, f"/{mine}/").post(browser)
    assert "hidden-value" in revealed.content.decode()
    assert json.loads(
        re.search(r"delayq-json\">(.*?)</pre>", revealed.content.decode().replace("&quot;", '"'), re.S)[1]
    ) == {  # type: ignore[index]
        "args": ["seen"],
        "kwargs": {"token": "hidden-value"},
    }
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.user.username) == (mine, "viewer")
    assert "viewer Revealed hidden values" in text(browser.get(page("job_detail", mine)))


def test_people_who_may_not_reveal_are_refused(visitor: Callable[..., Client], stock: ShardApis) -> None:
    mine = add(stock, token="hidden-value")
    browser = visitor("manager")
    assert not [form for form in forms(browser.get(page("job_detail", mine))) if form.action.endswith(f"/{mine}/")]
    answer = browser.post(page("job_detail", mine))
    assert answer.status_code == 403
    assert not LogEntry.objects.exists()


def test_an_unknown_task_is_a_warning_and_all_actions_remain(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, "all-hidden", task="old.removed")
    answer = browser.get(page("job_detail", mine))
    assert "Unknown task." in text(answer)
    assert "all-hidden" not in text(answer)
    assert "Retry now Retry later… Edit arguments and retry… Delete" in text(answer)


def test_long_arguments_are_truncated_unless_all_are_requested(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, "x" * 50_000 + "end")
    answer = browser.get(page("job_detail", mine))
    assert "xend" not in answer.content.decode()
    assert "Show all (48.9" in text(answer)
    assert "xend" in browser.get(link(answer, "Show all")).content.decode()


def test_an_unreadable_body_is_revealed_in_hexadecimal(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    raw_id, _ = from_text(mine) or (b"", 0)
    stock.client.hset(stock.keys("jobs"), raw_id, b"\x01\x64\x02\x07default\x00\x01x{nonsense")
    answer = browser.get(page("job_detail", mine))
    assert "The job cannot be read." in text(answer)
    assert "7b6e6f6e" not in text(answer)
    assert "7b6e6f6e" in text(form_to(answer, f"/{mine}/").post(browser)).replace(" ", "")


def test_the_key_of_a_job_is_hidden_if_its_arguments_are(browser: Client, stock: ShardApis) -> None:
    open_one, hidden = add(stock, unique_by="invoice-42"), add(stock, unique_by="4111-2222", card="4111-2222")
    assert "invoice-42" in text(browser.get(page("job_detail", open_one)))
    answer = browser.get(page("job_detail", hidden))
    assert "4111-2222" not in text(answer)
    assert text(form_to(answer, f"/{hidden}/").post(browser)).count("4111-2222") == 3


def test_the_context_of_a_job_is_shown_and_its_secrets_are_hidden(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, context={"request_id": "7f3a", "api_token": "4111-2222"})
    answer = browser.get(page("job_detail", mine))
    assert "&quot;request_id&quot;: &quot;7f3a&quot;" in text(answer) and "4111-2222" not in text(answer)
    assert "&quot;api_token&quot;: &quot;4111-2222&quot;" in text(form_to(answer, f"/{mine}/").post(browser))
    assert "Context" not in text(browser.get(page("job_detail", add(stock))))


def test_the_page_of_a_missing_job_shows_the_audit_log(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    answer = browser.get(page("job_detail", mine))
    confirm = form_to(answer, "/action/", button="cancel").post(browser, action="cancel")
    assert form_to(confirm, "/action/").post(browser).url == page("job_detail", mine)
    answer = browser.get(page("job_detail", mine))
    assert answer.status_code == 404
    page_text = text(answer)
    assert "1 job cancelled." in page_text
    assert f"There is no job {mine} any more" in page_text
    assert "superuser Cancelled" in page_text


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "0" * 24 + "-0",
        "0" * 24 + "-9999",
        POSTED.replace("/", ""),
        "x" * 10_000,
    ],
)
def test_an_unknown_id_is_a_404(browser: Client, name: str) -> None:
    answer = browser.get(page("job_detail", name))
    assert answer.status_code == 404
    assert "<script>alert" not in answer.content.decode()


def test_neighbours_follow_the_list_and_its_filter(browser: Client, stock: ShardApis) -> None:
    made = [add(stock, number, queue="mail", delay=HOUR + number) for number in range(3)]
    add(stock, delay=HOUR + 1)
    row = browser.get(page("scheduled", queue="mail"))
    answer = browser.get(job_link(row, made[1]))
    after = browser.get(link(answer, "Next in list"))
    assert f"/{made[2]}/" in after.url
    assert "queue=mail" in after.url
    assert f"/{made[0]}/" in browser.get(link(answer, "Previous in list")).url
    over = browser.get(link(browser.get(after.url), "Next in list"))
    assert over.url == page("scheduled", queue="mail")
    assert "There is no further job in that direction." in text(browser.get(over.url))


def test_neighbours_of_failed_jobs_are_newest_first(browser: Client, stock: ShardApis) -> None:
    first, second = add_dead(stock, 1), add_dead(stock, 2)
    answer = browser.get(page("job_detail", second))
    assert f"/{first}/" in browser.get(link(answer, "Next in list")).url
    assert browser.get(link(answer, "Previous in list")).url == page("failed")


def test_a_link_from_a_list_saves_round_trips(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, queue="mail")
    address = job_link(browser.get(page("scheduled")), mine)

    def calls() -> int:
        found: dict[str, Any] = stock.client.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "zunion", "eval"))

    before = calls()
    assert mine in text(browser.get(address))
    assert calls() - before <= 3


@pytest.mark.parametrize(
    "query", ["in=~zz", "row=x", "list=none", "row=1.00", "list=ready&row=end", "all=1", "in=a/b&list=failed"]
)
def test_no_query_breaks_the_page(browser: Client, stock: ShardApis, query: str) -> None:
    for mine in (add(stock), add_dead(stock)):
        assert browser.get(f"{page('job_detail', mine)}?{query}").status_code == 200
