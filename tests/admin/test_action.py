"""Actions: asked, confirmed, carried out in chunks, told; and refused to whoever may not or comes too late."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.admin import audit_log
from django_delayq.admin.actions import run as carrying
from django_delayq.clock import ServerClock
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ids import from_text
from django_delayq.job.outcome import Action, Decision
from django_delayq.store.claims import Settlement
from django_delayq.store.operations import Operations
from tests.admin.conftest import SITES, page
from tests.admin.forms import form_to, forms
from tests.admin.jobs import HOSTILE, HOUR, POSTED, add, add_dead, claim, due_us, state
from tests.admin.reports import tell
from tests.admin.test_pending import ids, link, text
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


def ask(browser: Client, address: str, deed: str, *ticked: str, **fields: Any) -> Any:
    """Tick rows of a list (or all that match) and press Go."""
    answer = browser.get(address)
    form = form_to(answer, "/action/", button=deed)
    boxes = [box for box in form.boxes if box[0] == "row" and box[1].split(".")[0] in ticked]
    assert len(boxes) == len(ticked)
    return form.post(browser, *boxes, deed=deed, **fields)


def confirm(browser: Client, answer: Any, **fields: Any) -> Any:
    """Press the button of the page that asks whether it is meant."""
    assert answer.status_code == 200, answer
    return form_to(answer, "/action/").post(browser, **fields)


def go_on(browser: Client, answer: Any) -> Any:
    """Press Continue until there is none; returns the answer after the last."""
    for _ in range(60):
        if answer.status_code == 302:
            return answer
        answer = form_to(answer, "/action/").post(browser)
    raise AssertionError("it never ends")


def done(browser: Client, answer: Any) -> str:
    """Follow back to the list and return what it tells."""
    assert answer.status_code == 302, text(answer)
    return text(browser.get(answer.url))


def test_ticked_dead_letters_are_retried_and_what_could_not_be_is_told(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number) for number in range(3)]
    answer = ask(browser, page("dead"), "retry", *mine)
    assert "Retry 3 dead letters?" in text(answer)
    for number, text_id in enumerate(mine):
        assert f"…{text_id[18:]} noop({number}) Broken: could not send" in text(answer)
    raw_id, _ = from_text(mine[0]) or (b"", 0)
    stock.operations.discard(raw_id, died_us=due_us(stock, mine[0]))
    assert "Retried 2; 1 was already gone." in done(browser, confirm(browser, answer))
    assert [state(stock, each) for each in mine] == ["gone", "ready", "ready"]
    found = stock.inspection.find(bytes.fromhex(mine[1][:24]))
    assert found.attempts.ended == 0
    assert len(found.attempts.history) == 1


def test_a_second_press_changes_nothing(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    answer = ask(browser, page("dead"), "retry", mine)
    confirm(browser, answer)
    assert "Retried 0; 1 was already gone." in done(browser, confirm(browser, answer))
    # It died again since: that is another dead letter.
    worker, claimed = claim(stock, mine)
    worker.settle(claimed, Action.DEAD_LETTER)
    assert "Retried 0; 1 was already gone." in done(browser, confirm(browser, answer))
    assert state(stock, mine) == "dead"


def test_the_list_is_as_it_was_after_an_action(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number, queue="mail") for number in range(30)]
    first = browser.get(page("dead", queue="mail", n=25, sort="turned"))
    address = link(first, "After")
    answer = confirm(browser, ask(browser, address, "delete", mine[-1]))
    assert answer.url == address
    assert link(ask(browser, address, "delete", mine[-2]), "Go back") == address


def test_all_that_match_up_to_now_and_none_that_came_later(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number, queue="mail") for number in range(3)]
    other = add_dead(stock)
    listed = form_to(browser.get(page("dead", queue="mail")), "/action/", button="retry")
    later = add_dead(stock, queue="mail")
    answer = listed.post(browser, ("all", "yes"), deed="retry")
    assert "Retry 3 dead letters?" in text(answer)
    assert "Queue mail, died up to" in text(answer)
    assert "Retried 3." in done(browser, confirm(browser, answer))
    assert {state(stock, each) for each in mine} == {"ready"}
    assert {state(stock, each) for each in (other, later)} == {"dead"}


def test_pending_jobs_that_came_later_are_not_meant(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number) for number in range(3)]
    listed = form_to(browser.get(page("pending")), "/action/", button="cancel")
    answer = listed.post(browser, ("all", "yes"), deed="cancel")
    later = add(stock)
    assert "Cancelled 3." in done(browser, confirm(browser, answer))
    assert {state(stock, each) for each in mine} == {"gone"}
    assert state(stock, later) == "scheduled"


def test_a_label_tells_how_many_are_meant(browser: Client, stock: ShardApis) -> None:
    for number in range(3):
        add_dead(stock, "odd" if number % 2 else "even")
    assert "all 3 matching" in text(browser.get(page("dead")))
    answer = ask(browser, page("dead"), "delete", all="yes")
    assert [name for form in forms(answer) for name, _ in form.fields if name == "order"]
    assert "Delete 3 dead letters" in text(answer)
    assert "This cannot be undone." in text(answer)
    assert "Export them first" in text(answer)


def test_cancel_has_the_focus(browser: Client, stock: ShardApis) -> None:
    answer = ask(browser, page("dead"), "delete", add_dead(stock))
    (focused,) = re.findall(r"<[^>]*autofocus[^>]*>", answer.content.decode())
    assert focused.startswith("<a ")
    assert page("dead") in focused


def test_more_than_a_hundred_are_deleted_only_with_their_number_typed(browser: Client, stock: ShardApis) -> None:
    for number in range(101):
        add_dead(stock, number)
    answer = ask(browser, page("dead"), "delete", all="yes")
    assert "Type 101 to go on:" in text(answer)
    for typed in ("", "100", "yes", "1", POSTED):
        answer = confirm(browser, answer, typed=typed)
        assert "Nothing was done yet." in text(answer)
    assert stock.inspection.counts().dead == 101
    assert "Deleted 101." in done(browser, confirm(browser, answer, typed=" 101 "))
    assert stock.inspection.counts().dead == 0
    (entry,) = LogEntry.objects.all()
    assert "Deleted 101, died up to" in entry.change_message


def test_long_work_goes_on_from_form_to_form(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "SECONDS", 0)
    monkeypatch.setattr(audit_log, "MOST_ROWS", 5)
    mine = [add_dead(stock, number) for number in range(12)]
    answer = confirm(browser, ask(browser, page("dead", within="1h"), "retry", all="yes"))
    for steps in range(1, 20):
        assert f"Retried {min(steps, 12)}. {min(steps, 12)} of 12 done." in text(answer)
        assert "data-continue" in answer.content.decode()
        assert stock.inspection.counts().dead == 12 - min(steps, 12)
        assert LogEntry.objects.get().change_message.startswith(f"Retried {min(steps, 12)},")
        answer = form_to(answer, "/action/").post(browser)
        if answer.status_code == 302:
            break
    assert steps >= 12
    assert "Retried 12." in done(browser, answer)
    assert {state(stock, each) for each in mine} == {"ready"}
    assert LogEntry.objects.get().change_message.startswith("Retried 12,")


def test_an_old_form_of_long_work_repeats_nothing(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "SECONDS", 0)
    mine = [add(stock, number, delay=HOUR * (number + 1)) for number in range(3)]
    dues = [due_us(stock, each) for each in mine]
    first = confirm(browser, ask(browser, page("pending"), "reschedule", *mine), shift="5", unit="60")
    form_to(first, "/action/").post(browser)
    go_on(browser, first)
    assert [due_us(stock, each) for each in mine] == [due + 5 * MINUTE for due in dues]


@pytest.mark.parametrize(
    ("shift", "unit", "us"), [("1", "3600", HOUR), ("-30", "60", -30 * MINUTE), ("90", "1", 90_000_000)]
)
def test_all_are_shifted_once_though_they_stay_in_the_list(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch, shift: str, unit: str, us: int
) -> None:
    monkeypatch.setattr(carrying, "SECONDS", 0)
    mine = [add(stock, number, queue=f"q{number % 2}", delay=HOUR * (number + 1)) for number in range(6)]
    dues = [due_us(stock, each) for each in mine]
    answer = confirm(browser, ask(browser, page("pending"), "reschedule", all="yes"), shift=shift, unit=unit)
    answer = go_on(browser, answer)
    assert "Rescheduled 6, by " in done(browser, answer)
    assert [due_us(stock, each) - due for each, due in zip(mine, dues, strict=True)] == [us] * 6


def test_jobs_are_rescheduled_to_a_moment_of_the_zone_that_is_shown(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, delay=HOUR * (number + 1)) for number in range(4)]
    answer = ask(browser, page("pending"), "reschedule", all="yes")
    assert "Times are in Europe/Berlin." in text(answer)
    done(browser, confirm(browser, answer, moment="2027-06-01T12:00"))
    # Noon of a summer's day in Berlin.
    assert {due_us(stock, each) for each in mine} == {1_811_844_000_000_000}
    browser.cookies["delayq_zone"] = "utc"
    answer = ask(browser, page("pending"), "reschedule", mine[0])
    done(browser, confirm(browser, answer, moment="2027-06-01T12:00:01"))
    assert due_us(stock, mine[0]) == 1_811_851_201_000_000


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"moment": "2027-06-01T12:00", "shift": "5"},
        {"moment": "soon"},
        {"moment": "9999-12-31T23:59"},
        {"shift": "1e400"},
        {"shift": "9" * 5_000},
        {"shift": "999999", "unit": "86400"},
        {"shift": "5", "unit": "x"},
        {"shift": "\x00"},
        {"moment": POSTED},
        {"moment": "x" * 1_000_000},
    ],
)
def test_a_time_that_makes_no_sense_is_asked_for_again(
    browser: Client, stock: ShardApis, fields: dict[str, str]
) -> None:
    mine = add(stock)
    due = due_us(stock, mine)
    answer = confirm(browser, ask(browser, page("pending"), "reschedule", mine), **fields)
    assert "errorlist" in answer.content.decode()
    assert due_us(stock, mine) == due


def test_jobs_run_now(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number) for number in range(2)]
    running = add(stock, queue="r", delay=None)
    assert "Made 2 run now." in done(browser, confirm(browser, ask(browser, page("pending"), "run_now", *mine)))
    assert {state(stock, each) for each in mine} == {"ready"}
    assert state(stock, running) == "ready"


def test_jobs_move_to_another_queue_once(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, queue=f"q{number}", delay=HOUR + number) for number in range(4)]
    answer = ask(browser, page("pending"), "move", all="yes")
    assert "q1" in answer.content.decode()
    # One is there already, and so not touched.
    assert "Moved 3, to queue " in done(browser, confirm(browser, answer, queue="q2"))
    assert ids(browser.get(page("pending", queue="q2"))) == mine


def test_jobs_move_to_declared_queues_only(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}, "default": {}}}
    mine = add(stock)
    for queue in ("", "mial", "x" * 300, "\x00"):
        answer = confirm(browser, ask(browser, page("pending"), "move", mine), queue=queue)
        assert "errorlist" in answer.content.decode()
    done(browser, confirm(browser, ask(browser, page("pending"), "move", mine), queue="mail"))
    assert ids(browser.get(page("pending", queue="mail"))) == [mine]


def test_jobs_that_run_are_no_longer_waiting(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    answer = ask(browser, page("pending"), "cancel", mine)
    stock.operations.reschedule(bytes.fromhex(mine[:24]), delay_us=0)
    claim(stock, mine)
    assert "Cancelled 0; 1 was no longer waiting." in done(browser, confirm(browser, answer))
    assert state(stock, mine) == "claimed"


def test_dead_letters_are_spread_at_random_over_minutes(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number) for number in range(20)]
    answer = ask(browser, page("dead"), "retry_later", all="yes")
    now_us = stock.store.dashboard(0).snapshot().now_us
    assert "Set 20 to be retried, spread over " in done(browser, confirm(browser, answer, minutes="60"))
    dues = [due_us(stock, each) - now_us for each in mine]
    assert all(0 <= due <= HOUR + MINUTE for due in dues)
    assert max(dues) - min(dues) > MINUTE
    assert len(set(dues)) == 20


def test_dead_letters_are_retried_at_a_moment(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    done(browser, confirm(browser, ask(browser, page("dead"), "retry_later", mine), moment="2027-06-01T12:00"))
    assert state(stock, mine) == "scheduled"
    assert abs(due_us(stock, mine) - 1_811_844_000_000_000) < MINUTE


def test_a_dead_letter_whose_key_is_taken_is_told_apart(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, unique_by="one")
    add(stock, unique_by="one")
    told = done(browser, confirm(browser, ask(browser, page("dead"), "retry", mine)))
    assert "Retried 0; 1 could not be: another task holds its key." in told


def test_arguments_are_edited_and_retried(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, 1, "ä", token="hidden-value", task="tests.sample_app.tasks.noop")
    answer = browser.get(page("task_detail", mine))
    answer = form_to(answer, "/action/", button="edit").post(browser, deed="edit")
    form = form_to(answer, "/action/")
    assert json.loads(dict(form.fields)["args"]) == [1, "ä"]
    assert json.loads(dict(form.fields)["kwargs"]) == {"token": "hidden-value"}
    assert LogEntry.objects.get().change_message == "Saw what is hidden"
    for args in (
        "",
        "{",
        "{}",
        "[" * 100_000,
        "[NaN]",
        "[" + "[" * 70 + "]" * 70 + "]",
        "\x00",
        '["' + "x" * 300_000 + '"]',
    ):
        answer = form.post(browser, args=args)
        assert "errorlist" in answer.content.decode() or answer.status_code == 302, args[:20]
        assert state(stock, mine) == "dead"
    assert "Retried 1." in done(browser, form.post(browser, args='[2, "ö"]', kwargs="{}"))
    found = stock.inspection.find(bytes.fromhex(mine[:24]))
    assert found.state == "ready"
    assert found.job is not None
    assert (found.job.args, found.job.kwargs) == ([2, "ö"], {})
    assert "superuser Retried with other arguments" in text(browser.get(page("task_detail", mine)))


def test_arguments_that_do_not_fit_the_function_are_refused(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, task="tests.sample_app.tasks.nap")
    answer = form_to(browser.get(page("task_detail", mine)), "/action/", button="edit").post(browser, deed="edit")
    answer = confirm(browser, answer, args="[1, 2]", kwargs="{}")
    assert "do not fit the function: too many positional arguments" in text(answer)
    assert state(stock, mine) == "dead"


def test_who_may_not_see_arguments_may_not_edit_them(visitor: Callable[..., Client], stock: ShardApis) -> None:
    browser, mine = visitor("manager"), add_dead(stock, token="hidden-value")
    form = form_to(browser.get(page("task_detail", mine)), "/action/", button="retry")
    assert not form.offers("edit")
    answer = form.post(browser, deed="edit")
    assert answer.status_code == 403
    assert "hidden-value" not in answer.content.decode()
    seen = add_dead(stock, 5)
    form = form_to(browser.get(page("task_detail", seen)), "/action/", button="edit")
    assert "[\n  5\n]" in form.post(browser, deed="edit").content.decode().replace("&quot;", '"')


def test_a_queue_is_purged_with_its_name_typed(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, queue="mail", delay=None) for number in range(3)]
    waiting, other = add(stock, queue="mail"), add(stock, delay=None)
    answer = form_to(browser.get(page("queue_detail", "mail")), "/action/", button="purge").post(browser, deed="purge")
    assert "Delete all 3 ready tasks?" in text(answer)
    later = add(stock, queue="mail", delay=None)
    assert "Nothing was done yet." in text(confirm(browser, answer, typed="3"))
    assert "Cancelled 3." in done(browser, confirm(browser, answer, typed="mail"))
    assert {state(stock, each) for each in mine} == {"gone"}
    assert state(stock, waiting) == "scheduled"
    assert {state(stock, each) for each in (other, later)} == {"ready"}


def test_a_purge_leaves_what_became_ready_later(browser: Client, stock: ShardApis) -> None:
    mine, scheduled = add(stock, queue="mail", delay=None), add(stock, queue="mail")
    form = form_to(browser.get(page("queue_detail", "mail")), "/action/", button="purge")
    survey = stock.store.dashboard(0)
    seen_us = int(dict(form.fields)["seen"])
    for _ in range(10_000):
        if survey.snapshot().now_us > seen_us + 5_000:
            break
    stock.operations.reschedule(bytes.fromhex(scheduled[:24]), delay_us=0)
    assert "Cancelled 1." in done(browser, confirm(browser, form.post(browser, deed="purge"), typed="mail"))
    assert (state(stock, mine), state(stock, scheduled)) == ("gone", "ready")


def test_a_queue_is_paused_and_resumed(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="a/b", delay=None)
    address = page("queue_detail", "a/b")
    answer = form_to(browser.get(address), "/action/", button="pause").post(browser, deed="pause")
    assert "Pause queue a/b?" in text(answer)
    assert stock.store.dashboard(0).snapshot().queues["a/b"].paused is None
    assert "Paused queue a/b." in done(browser, confirm(browser, answer))
    assert "Queue a/b was paused already." in done(browser, confirm(browser, answer))
    paused = stock.store.dashboard(0).snapshot().queues["a/b"].paused
    assert paused is not None
    assert paused.by == "superuser"
    said = browser.get(address)
    assert "paused by superuser" in text(said)
    answer = form_to(said, "/action/", button="resume").post(browser, deed="resume")
    assert "Resumed queue a/b." in done(browser, confirm(browser, answer))
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Paused queue a/b",
        "Resumed queue a/b",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"deed": "pause", "queue": "none"},
        {"deed": "pause"},
        {"deed": "resume", "queue": "~zz"},
        {"deed": "quiet", "worker": POSTED},
        {"deed": "unquiet", "sure": "yes", "worker": "00" * 8},
        {"deed": "quiet", "sure": "yes"},
    ],
)
def test_what_is_not_there_cannot_be_turned(browser: Client, fields: dict[str, str]) -> None:
    assert "It is not there any more. Nothing was done." in done(browser, browser.post(page("action"), fields))


def test_a_worker_is_asked_to_take_no_more(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, _ = claim(stock, mine)
    code = worker.code.hex()
    answer = browser.post(page("action"), {"deed": "quiet", "worker": code})
    assert "Quiet worker" in text(answer)
    assert "to take no more tasks." in done(browser, confirm(browser, answer))
    (process,) = [each for each in stock.store.dashboard(0).snapshot().processes if each.code == worker.code]
    assert process.asked_quiet
    answer = browser.post(page("action"), {"deed": "unquiet", "worker": code})
    assert "take tasks again." in done(browser, confirm(browser, answer))


@pytest.mark.parametrize("site", SITES)
def test_only_who_may_manage_posts_here(visitor: Callable[..., Client], site: str, delayq_settings: Any) -> None:
    address = page("action", site=site)
    for method in ("get", "head", "put", "delete", "patch", "options"):
        assert getattr(visitor("manager"), method)(address).status_code == 405
    for kind, status in (("superuser", 302), ("manager", 302), ("viewer", 403), ("staff", 403), ("anonymous", 302)):
        answer = visitor(kind).post(address, {"deed": "retry", "place": "dead"})
        assert answer.status_code == status
        assert ("login" in answer.headers.get("Location", "")) == (kind == "anonymous")
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ADMIN": {"READ_ONLY": True}}
    assert visitor("superuser").post(address, {}).status_code == 403


def test_who_comes_from_the_login_to_an_action_is_told_that_nothing_was_done(browser: Client) -> None:
    answer = browser.get(page("action"))
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert "your session had ended, and nothing was done" in text(answer)
    assert link(answer, "Dead letters") == page("dead")


@pytest.mark.parametrize(("place", "deed"), [("pending", "reschedule"), ("dead", "retry_later")])
def test_a_moment_that_is_past_is_refused(browser: Client, stock: ShardApis, place: str, deed: str) -> None:
    mine = add(stock) if place == "pending" else add_dead(stock)
    before_us = due_us(stock, mine)
    answer = confirm(browser, ask(browser, page(place), deed, mine), moment="2020-01-01T12:00")
    assert "That moment is past." in text(answer)
    assert due_us(stock, mine) == before_us


def test_who_moves_jobs_to_a_queue_without_a_worker_is_told(browser: Client, stock: ShardApis) -> None:
    tell(stock, queues=["mail"])
    for queue, alone in (("mial", True), ("mail", False)):
        told = done(browser, confirm(browser, ask(browser, page("pending"), "move", add(stock)), queue=queue))
        assert f"Moved 1, to queue {queue}." in told
        assert ("No worker takes tasks from queue mial now." in told) is alone


def test_a_post_without_its_csrf_token_is_refused(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    answer = ask(browser, page("dead"), "delete", mine)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = browser.cookies
    order = dict(form_to(answer, "/action/").fields)["order"]
    assert strict.post(page("action"), {"order": order}).status_code == 403
    assert state(stock, mine) == "dead"


def test_an_order_of_somebody_else_is_refused(visitor: Callable[..., Client], stock: ShardApis) -> None:
    mine = add_dead(stock)
    answer = ask(visitor("superuser"), page("dead"), "delete", mine)
    form = form_to(answer, "/action/")
    other = visitor("manager")
    assert "too old or not yours. Nothing was done." in done(other, form.post(other))
    assert state(stock, mine) == "dead"


def test_a_stale_order_is_refused(browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = add_dead(stock)
    answer = ask(browser, page("dead"), "delete", mine)
    monkeypatch.setattr("django_delayq.admin.actions.requests._GOOD_FOR", -1)
    assert "too old or not yours" in done(browser, confirm(browser, answer))
    assert state(stock, mine) == "dead"


_FORGED = [
    "",
    "x",
    "\x00",
    POSTED,
    "9" * 5_000,
    "-1",
    "x" * 1_000_000,
    "queue=%00&from=99999999999999999999&n=x",
]


@pytest.mark.parametrize(
    "name", ["deed", "place", "row", "all", "filter", "page", "seen", "job", "order", "typed", "queue"]
)
def test_no_forged_field_is_an_error_of_ours(browser: Client, stock: ShardApis, name: str) -> None:
    mine, waiting = add_dead(stock), add(stock)
    form = form_to(browser.get(page("dead")), "/action/")
    confirmed = form_to(ask(browser, page("pending"), "reschedule", waiting), "/action/")
    row = next(box for box in form.boxes if box[0] == "row")
    for value in _FORGED:
        for deed in ("delete", "edit", "retry_later"):
            assert form.post(browser, row, **{"deed": deed, name: value}).status_code in (200, 302)
        assert form.post(browser, **{"deed": "purge", "place": "ready", name: value}).status_code in (200, 302)
        assert form.post(browser, **{"deed": "retry", "all": "yes", name: value}).status_code in (200, 302)
        assert confirmed.post(browser, **{name: value}).status_code in (200, 302)
    assert state(stock, mine) == "dead"
    assert state(stock, waiting) == "scheduled"


def test_a_row_of_no_shard_there_is_is_gone(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    form = form_to(browser.get(page("dead")), "/action/")
    answer = form.post(browser, ("row", f"{mine[:24]}-9999.5"), deed="retry")
    assert "Retried 0; 1 was already gone." in done(browser, confirm(browser, answer))


def test_what_was_done_is_written_down_though_redis_failed(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [add_dead(stock, number) for number in range(3)]
    answer = ask(browser, page("dead"), "retry", *mine)
    carried, requeue = [], Operations.requeue

    def fails(self: Operations, raw_id: bytes, **options: Any) -> int | None:
        if len(carried) == 2:
            raise StoreUnavailable("gone away")
        carried.append(raw_id)
        return requeue(self, raw_id, **options)

    monkeypatch.setattr(Operations, "requeue", fails)
    failed = confirm(browser, answer)
    assert failed.status_code == 503
    assert LogEntry.objects.count() == 2
    assert "Retried 2, then Redis failed" in text(failed) + text(browser.get(page("dead")))
    monkeypatch.undo()
    assert "Retried 1; 2 were already gone." in done(browser, confirm(browser, answer))


def test_an_action_asked_for_on_a_jobs_own_page_leads_back_there(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    answer = form_to(browser.get(page("task_detail", mine)), "/action/", button="retry").post(browser, deed="retry")
    assert confirm(browser, answer).url == page("task_detail", mine)


def test_all_shards_are_gone_through(
    browser: Client, delayq_settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "SECONDS", 0)
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    parts = [ShardApis(redis_url, clock=ServerClock(), shard=shard, SHARDS=3) for shard in range(3)]
    mine = [add_dead(parts[number % 3], "needle") for number in range(7)]
    other = [add_dead(part) for part in parts]
    answer = ask(browser, page("dead", q="needle"), "retry", all="yes")
    assert "Retry 7 dead letters?" in text(answer)
    answer = confirm(browser, answer)
    answer = go_on(browser, answer)
    assert "Retried 7." in done(browser, answer)
    assert {state(parts[int(each[-1])], each) for each in mine} == {"ready"}
    assert {state(parts[int(each[-1])], each) for each in other} == {"dead"}
    for part in parts:
        part.close()


def test_a_confirm_page_shows_hostile_rows_as_text(browser: Client, stock: ShardApis) -> None:
    add_dead(stock, HOSTILE, task="tests.sample_app.tasks.noop", queue=HOSTILE)
    for deed in ("retry", "retry_later", "delete"):
        body = ask(browser, page("dead", q="alert"), deed, all="yes").content.decode()
        assert "<script>alert" not in body
        assert "&lt;script&gt;" in body


def test_every_form_can_be_sent_without_a_script(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    pending, dead = add(stock), add_dead(stock)
    pages = [page("pending"), page("dead"), page("dead", group="error"), page("queue_detail", "mail")]
    for address in (*pages, page("task_detail", pending), page("task_detail", dead)):
        posts = [form for form in forms(browser.get(address)) if form.action == page("action")]
        assert posts
        for form in posts:
            assert "csrfmiddlewaretoken" in dict(form.fields)
            assert "deed" in dict(form.buttons)


def test_a_job_that_ran_when_the_page_was_drawn_and_came_back_is_not_meant(browser: Client, stock: ShardApis) -> None:
    back = add(stock, "ran", queue="runs", delay=None)
    worker, running = claim(stock, back, queue="runs")
    mine = add(stock, "waits", delay=HOUR)
    asked = ask(browser, page("pending"), "cancel", all="yes")
    now_us = stock.clock.now_us
    attempts = running.attempts.add(worker="w", started_us=now_us, ended_us=now_us, ending="failed", error="x")
    again = Settlement(claim=running, decision=Decision(action=Action.RETRY, delay_us=HOUR // 2), attempts=attempts)
    assert not worker.take(0, settle=[again]).lost
    assert "Cancelled 1." in done(browser, confirm(browser, asked))
    assert (state(stock, mine), state(stock, back)) == ("gone", "scheduled")
