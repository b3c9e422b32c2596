"""delayq_schedules: what it lists and shows, what it changes, and what it refuses."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import RetryPolicy, delayed_task, get_job, get_store, jobs
from django_delayq.display.arguments import DOTS
from django_delayq.management.operating import FAILED, NOT_CONFIRMED, NOT_FOUND, WRONG_OPTIONS
from django_delayq.store.claims import Claims
from django_delayq.store.digests import schedule_id
from django_delayq.store.schedules.stored_schedule import DECLARED
from django_delayq.testing import DelayQ
from tests.integration.commands.operating.printed import read, run
from tests.sample_app import tasks
from tests.shard_apis import NINE

NOOP = tasks.noop.name


@delayed_task(name="operating.bill", sensitive=("card",), retry=RetryPolicy(max_attempts=1))
def bill(card: str) -> None:
    """Fail for good."""
    raise ValueError("as asked")


@delayed_task(name="other.noop")
def other_noop() -> None:
    """Do nothing."""


@pytest.fixture
def delayq() -> Iterator[DelayQ]:
    """A queue of this test, at nine on a Monday, with three schedules of two tasks."""
    with DelayQ() as queue:
        queue.advance_to(NINE)
        tasks.noop.schedules.set("morning", cron="0 9 * * mon-fri", tz="Europe/Berlin", args=["x"])
        tasks.noop.schedules.set("often", every=300, jitter=60)
        bill.schedules.set("month", every=timedelta(days=1), args=["4111"], pause_after=2)
        yield queue


def of(name: str, *options: str) -> dict[str, Any]:
    """Return what the list has of one schedule."""
    (found,) = [each for each in read("delayq_schedules", *options) if each["name"] == name]
    return dict(found)


def test_schedules_are_listed_by_task_and_name(delayq: DelayQ) -> None:
    found = read("delayq_schedules")
    assert [(each["task"], each["name"], each["state"]) for each in found] == [
        ("operating.bill", "month", "waiting"),
        (NOOP, "morning", "waiting"),
        (NOOP, "often", "waiting"),
    ]
    assert [each["rule"] for each in found] == ["every 1 d", "0 9 * * mon-fri (Europe/Berlin)", "every 5 min"]
    assert [each["next"][:13] for each in found] == ["2100-01-05T00", "2100-01-05T08", "2100-01-04T09"]
    line = run("delayq_schedules", "--prefix", "morn").split()
    assert line == [
        "waiting",
        "2100-01-05T08:00:00Z",
        NOOP,
        "morning",
        *["0", "9", "*", "*", "mon-fri", "(Europe/Berlin)"],
    ]


def test_filters(delayq: DelayQ) -> None:
    def names(*options: str) -> list[str]:
        return [each["name"] for each in read("delayq_schedules", *options)]

    assert names("--task", "noop") == names("--task", NOOP) == ["morning", "often"]
    assert names("--task", "bill", "--prefix", "m") == ["month"]
    assert names("--prefix", "m") == ["month", "morning"]
    assert names("--prefix", "orning") == names("--task", "op") == names("--state", "paused") == []
    tasks.noop.schedules.pause("often")
    assert names("--state", "paused") == ["often"]
    assert run("delayq_schedules", "--count") == "3\n"
    assert read("delayq_schedules", "--count", "--state", "waiting") == {"matched": 2}
    assert run("delayq_schedules", "--task", "nothing") == ""


def test_a_list_says_that_it_was_cut_only_if_it_was(delayq: DelayQ, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("delayq_schedules", limit=3)
    assert "--limit 0" not in capsys.readouterr().err
    call_command("delayq_schedules", limit=2)
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == "These are 2 of them; --limit 0 lists all, --count counts them.\n"
    assert len(read("delayq_schedules", "--limit", "0")) == 3


def test_what_became_of_jobs(delayq: DelayQ) -> None:
    delayq.advance_to(NINE + timedelta(days=1))
    delayq.advance(days=3, run=True, errors="retry")
    failed = of("month")
    assert (failed["state"], failed["paused"], failed["paused_by_failures"], failed["failures"]) == (
        "paused",
        True,
        True,
        2,
    )
    assert failed["next"] is None
    assert failed["last"]["outcome"] == "failed"
    assert failed["last_ended"].startswith("2100-01-0")
    assert "  2 failed in a row" in run("delayq_schedules", "--state", "paused")
    often = of("often")
    assert (often["state"], often["last"]["outcome"], often["failures"], often["running"]) == (
        "waiting",
        "done",
        0,
        None,
    )
    waiting = get_job(often["job"])
    assert waiting is not None
    assert waiting.job.args == []
    shown = read("delayq_schedules", "noop", "often")
    assert len(shown["runs"]) == 20
    assert {each["outcome"] for each in shown["runs"]} == {"done"}


def test_one_schedule_is_shown_whole(delayq: DelayQ) -> None:
    shown = read("delayq_schedules", "noop", "morning")
    assert shown["upcoming"][:3] == [f"2100-01-0{day}T08:00:00+00:00" for day in (5, 6, 7)]
    assert len(shown["upcoming"]) == 10
    assert (shown["call"], shown["queue"], shown["overlap"], shown["catch_up"]) == (
        "noop('x')",
        "default",
        "skip",
        "last",
    )
    assert shown == read("delayq_schedules", shown["id"])
    lines = run("delayq_schedules", NOOP, "morning").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("next ")][:2] == [
        "2100-01-05T08:00:00Z",
        "2100-01-06T08:00:00Z",
    ]
    often = read("delayq_schedules", "noop", "often")
    assert often["jitter"] == 60
    assert often["upcoming"][0] == often["next"]
    run("delayq_schedules", "noop", "often", "--pause", "--yes")
    assert "next if resumed    2100-01-04T09:0" in run("delayq_schedules", "noop", "often")


def test_a_running_job_is_named(delayq: DelayQ) -> None:
    schedule = tasks.noop.schedules.get("often")
    assert schedule is not None
    handle = schedule.run_now()
    assert Claims(get_store().shards[0]).claim_one(bytes.fromhex(handle.id[:24]), worker_name="w") is not None
    found = of("often", "--state", "running")
    assert found["running"] == handle.id


def test_sensitive_arguments_are_hidden(delayq: DelayQ, registered: Any) -> None:
    assert read("delayq_schedules", "bill", "month")["call"] == f"bill({DOTS})"
    registered({})
    # Its task is not registered here: it is listed, and all its arguments are hidden.
    assert of("morning")["task"] == NOOP
    assert read("delayq_schedules", NOOP, "morning")["call"] == f"noop({DOTS})"
    assert "4111" not in run("delayq_schedules") + run("delayq_schedules", "operating.bill", "month")


def test_one_of_a_task_that_this_code_lacks_is_found_by_the_whole_name(delayq: DelayQ, registered: Any) -> None:
    registered({})
    with pytest.raises(CommandError, match="this code has no such task: give its whole name") as raised:
        run("delayq_schedules", "noop", "morning", "--delete", "--yes")
    assert raised.value.returncode == NOT_FOUND
    assert read("delayq_schedules", NOOP, "morning", "--delete", "--yes")["changed"] == 1


def test_pause_and_resume(delayq: DelayQ) -> None:
    name = f"schedule 'often' of {NOOP}"
    assert run("delayq_schedules", "noop", "often", "--pause", "--dry-run") == f"Would pause {name}.\n"
    assert of("often")["state"] == "waiting"
    assert run("delayq_schedules", "noop", "often", "--pause", "--yes") == f"Paused {name}.\n"
    assert of("often")["state"] == "paused"
    assert run("delayq_schedules", "noop", "often", "--pause", "--yes") == f"No change for {name}.\n"
    assert read("delayq_schedules", "noop", "often", "--resume", "--yes")["changed"] == 1
    assert read("delayq_schedules", "noop", "often", "--resume", "--yes")["changed"] == 0
    assert of("often")["state"] == "waiting"


def test_a_paused_one_has_no_waiting_job(delayq: DelayQ) -> None:
    delayq.run_due()
    job = of("often")["job"]
    assert job is not None and get_job(job) is not None
    run("delayq_schedules", "noop", "often", "--pause", "--yes")
    delayq.advance(hours=1)
    shown = read("delayq_schedules", "noop", "often")
    assert (shown["job"], get_job(job)) == (None, None)
    assert datetime.fromisoformat(shown["upcoming"][0]) > delayq.now
    handle = tasks.noop.schedules.get("often")
    assert handle is not None and handle.job_id is None


def test_delete(delayq: DelayQ) -> None:
    id = of("often")["id"]
    assert read("delayq_schedules", id, "--delete", "--dry-run") == {"dry_run": True, "changed": 0, "id": id}
    assert read("delayq_schedules", id, "--delete", "--yes") == {"changed": 1, "id": id}
    assert run("delayq_schedules", "--count") == "2\n"
    with pytest.raises(CommandError, match="There is no schedule 'often' of the task 'noop'"):
        run("delayq_schedules", "noop", "often")


def test_run_now(delayq: DelayQ) -> None:
    tasks.noop.schedules.pause("morning")
    text = run("delayq_schedules", "noop", "morning", "--run-now", "--yes")
    assert text.startswith(f"Enqueued a job of schedule 'morning' of {NOOP}: ")
    [job] = jobs(state="ready")
    assert job.id in text
    assert job.job.args == ["x"]
    assert read("delayq_schedules", "noop", "morning", "--run-now", "--yes")["job"] in {
        each.id for each in jobs(state="ready")
    }


def test_one_that_cannot_be_read_is_shown_with_the_reason(delayq: DelayQ) -> None:
    shard = get_store().shards[0]
    id, key = schedule_id(NOOP, "often"), shard.keys("schedules")
    stored = shard.client.hget(key, id)
    shard.client.hset(key, id, stored.replace(b"every 300", b"daily 300"))
    [found] = read("delayq_schedules", "--state", "unreadable")
    assert (found["id"], found["task"], found["name"], found["next"]) == (f"{id.hex()}-0", None, None, None)
    assert "this release cannot read the rule 'daily 300 from 0'" in found["fault"]
    line = run("delayq_schedules", "--state", "unreadable")
    assert line.startswith(f"unreadable  -                     {id.hex()}-0  this release cannot read ")
    assert read("delayq_schedules", "noop", "often")["fault"] == found["fault"]
    with pytest.raises(CommandError, match="cannot read the rule") as raised:
        run("delayq_schedules", "noop", "often", "--run-now", "--yes")
    assert raised.value.returncode in (FAILED, WRONG_OPTIONS)
    assert run("delayq_schedules", f"{id.hex()}-0", "--delete", "--yes") == f"Deleted schedule {id.hex()}-0.\n"
    assert run("delayq_schedules", "--count") == "2\n"


def test_one_that_is_declared_in_code_is_not_deleted(delayq: DelayQ) -> None:
    shard = get_store().shards[0]
    id, key = schedule_id(NOOP, "often"), shard.keys("schedules")
    stored = shard.client.hget(key, id)
    shard.client.hset(key, id, bytes((stored[0] | DECLARED,)) + stored[1:])
    assert of("often")["declared"]
    with pytest.raises(CommandError, match="is declared in code: delete it there, or pause it") as raised:
        run("delayq_schedules", "noop", "often", "--delete", "--yes")
    assert raised.value.returncode == WRONG_OPTIONS
    assert read("delayq_schedules", "noop", "often", "--pause", "--yes")["changed"] == 1
    assert of("often")["declared"]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("noop", "nothing"), NOT_FOUND, "There is no schedule 'nothing' of the task 'noop'"),
        (("nothing", "often", "--pause", "--yes"), NOT_FOUND, "There is no schedule 'often' of the task 'nothing'"),
        (("0123456789abcdef-0",), NOT_FOUND, "There is no schedule 0123456789abcdef-0"),
        (("0123456789abcdef-7",), NOT_FOUND, "There is no schedule"),
        (("noop",), WRONG_OPTIONS, "'noop' is not the id of a schedule"),
        (("noop", "often", "more"), WRONG_OPTIONS, "Quote a name that has spaces"),
        (("noop", "often", "--task", "noop", "--count"), WRONG_OPTIONS, "leave out --task, --count"),
        (("--pause", "--yes"), WRONG_OPTIONS, "--pause needs a schedule"),
        (("--run-now",), WRONG_OPTIONS, "--run-now needs a schedule"),
        (("noop", "often", "--pause", "--delete"), 1, "not allowed with argument"),
        (("--limit", "-1"), WRONG_OPTIONS, "--limit must be 0"),
        (("noop", "often", "--pause"), NOT_CONFIRMED, "Standard input is no terminal"),
    ],
)
def test_wrong_options_are_refused(delayq: DelayQ, command: tuple[str, ...], code: int, words: str) -> None:
    with pytest.raises(CommandError, match=words) as raised:
        run("delayq_schedules", *command)
    assert raised.value.returncode == code
    assert read("delayq_schedules", "--count", "--state", "waiting") == {"matched": 3}


def test_several_tasks_may_end_alike(delayq: DelayQ) -> None:
    other_noop.schedules.set("often", every=60)
    with pytest.raises(CommandError, match=f"Several tasks end with 'noop' .*{NOOP}") as raised:
        run("delayq_schedules", "noop", "often")
    assert raised.value.returncode == WRONG_OPTIONS
    assert read("delayq_schedules", "other.noop", "often")["rule"] == "every 1 min"


def test_nothing_that_was_stored_controls_the_terminal(delayq: DelayQ) -> None:
    tasks.noop.schedules.set("a\x1b[2Jb\nc", every=60, args=["\x1b[31m"])
    for command in ((), ("noop", "a\x1b[2Jb\nc")):
        text = run("delayq_schedules", *command)
        assert "\x1b" not in text
        assert r"a\x1b[2Jb\nc" in text


def test_all_shards_are_listed(delayq_settings: Any, redis_url: str) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url, "ON_COMMIT": False, "SHARDS": 3}
    tasks.noop.schedules.set_many({"name": str(number), "every": 60} for number in range(9))
    found = read("delayq_schedules")
    assert [each["name"] for each in found] == [str(number) for number in range(9)]
    assert {each["id"][-2:] for each in found} == {"-0", "-1", "-2"}
    assert read("delayq_schedules", "--count") == {"matched": 9}
    for each in found:
        assert read("delayq_schedules", "noop", each["name"])["id"] == each["id"]
