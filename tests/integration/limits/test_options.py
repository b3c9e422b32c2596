"""The options `limit`, `cost` and `on_limit`: what is stored, and which values are refused before anything is."""

from typing import Any

import pytest

from django_delayq import Debounce, Task, delayed_task, execute_later, get_job, get_store, limit
from django_delayq.conf.settings import read_config
from django_delayq.exceptions import InvalidDelay, UnknownLimit
from django_delayq.job.job import LimitUse
from django_delayq.testing import DelayQ

LIMITS = {
    "stripe": {"rate": "10/s", "burst": 5, "max_running": 2},
    "mail": {"max_running": 1},
    "slow": {"rate": "6/h"},
    "thirds": {"rate": "3/s", "burst": 1},
}


@pytest.fixture(autouse=True)
def limited(delayq: DelayQ, registered: Any, settings: Any) -> None:
    """Declare the limits, and undo at the end what a test registered."""
    registered()
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": LIMITS}


def charge(account: int, amount: int = 1) -> None:
    """Be a task."""


def declared(**options: Any) -> Task[..., None]:
    return delayed_task(name="charge", **options)(charge)


def limits_of(task: Task[..., None], *args: Any, **kwargs: Any) -> tuple[LimitUse, ...]:
    """Return the limits of a job as Redis has them."""
    found = get_job(task.enqueue(*args, **kwargs).id)
    assert found and found.job
    return found.job.limits


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("stripe", [("stripe", None)]),
        (("stripe", 7), [("stripe", "7")]),
        (("stripe", "eu"), [("stripe", "eu")]),
        (("stripe", lambda account: account), [("stripe", "42")]),
        (("stripe", lambda account, amount: f"{account}-{amount}"), [("stripe", "42-1")]),
        (("stripe", lambda: None), []),
        (["stripe", ("mail", lambda account: account)], [("stripe", None), ("mail", "42")]),
        ([("mail", lambda account: account), ("mail", lambda: 42)], [("mail", "42")]),
        ([], []),
        (None, []),
    ],
)
def test_the_limits_of_a_job_are_stored(option: Any, expected: list[tuple[str, str | None]]) -> None:
    assert list(limits_of(declared(limit=option), 42)) == expected
    task = declared().using(limit=option) if option is not None else declared()
    assert list(limits_of(task, 42)) == expected


def test_a_call_replaces_the_limits_of_the_task() -> None:
    task = declared(limit="stripe")
    assert limits_of(task.using(limit="mail"), 1) == (("mail", None),)
    assert limits_of(task.using(limit=[]), 1) == ()
    assert limits_of(task.using(cost=2), 1) == (("stripe", None),)
    job = execute_later("default", "charge", [1], limit=("mail", 3), cost=1, on_limit="drop")
    found = get_job(job.id)
    assert found and found.job and found.job.limits == (("mail", "3"),)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"limit": 7}, TypeError, "limit must be the name of a limit, a tuple"),
        ({"limit": ("stripe",)}, TypeError, "limit must be the name of a limit, a tuple"),
        ({"limit": ("stripe", None)}, TypeError, "limit must be the name of a limit, a tuple"),
        ({"limit": {"stripe": 1}}, TypeError, "limit must be the name of a limit, a tuple"),
        ({"limit": ("stripe", 1.5)}, ValueError, "the value of the limit 'stripe' must be"),
        ({"limit": ("stripe", True)}, ValueError, "the value of the limit 'stripe' must be"),
        ({"limit": ""}, ValueError, "the name of a limit must"),
        ({"limit": ("stripe", "x" * 201)}, ValueError, "the value of the limit 'stripe' must be"),
        ({"limit": ["mail", "mail"]}, ValueError, "names the same limit twice"),
        ({"limit": [("mail", 7), ("mail", "7")]}, ValueError, "names the same limit twice"),
        ({"limit": [("mail", number) for number in range(9)]}, ValueError, "up to 8 limits, got 9"),
        ({"limit": ("stripe", lambda other: other)}, ValueError, "'other', which is no parameter of the task"),
        ({"limit": "stripe", "cost": 0}, ValueError, "cost must be a whole number, 1 to"),
        ({"limit": "stripe", "cost": 1.0}, ValueError, "cost must be a whole number, 1 to"),
        ({"limit": "stripe", "on_limit": "queue"}, ValueError, "on_limit must be 'wait' or 'drop', got 'queue'"),
    ],
)
def test_wrong_options_are_refused_at_the_declaration(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        declared(**options)
    with pytest.raises(error, match=text):
        declared().using(**options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"limit": "strip"},
            UnknownLimit,
            r"the limit 'strip' is not declared in DELAYQ\['LIMITS'\] \(did you mean 'stripe'\?\)",
        ),
        ({"limit": "x"}, UnknownLimit, "it has stripe, mail, slow"),
        ({"limit": "stripe", "cost": 6}, ValueError, "cost=6 is more than the burst of the limit 'stripe', which is 5"),
        ({"limit": "slow", "cost": 2}, ValueError, "which is 1"),
        ({"limit": ("stripe", lambda: 1.5)}, ValueError, "the limit 'stripe' of charge must be"),
        ({"limit": ("stripe", lambda: "")}, ValueError, "the limit 'stripe' of charge must"),
    ],
)
def test_what_settings_or_arguments_forbid_is_refused_at_the_call(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    task = declared(**options)
    with pytest.raises(error, match=text):
        task.enqueue(1)
    assert not get_store().snapshot().queues or not sum(get_store().snapshot().queues["default"].counts)


def test_a_cost_counts_for_rates_alone() -> None:
    assert limits_of(declared(limit="mail", cost=7), 1) == (("mail", None),)


def test_limits_that_cannot_share_a_shard_are_refused(settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 3}
    task = declared(limit=["stripe", ("mail", lambda account: account)])
    with pytest.raises(ValueError, match="the limits stripe, mail are kept in different shards; with SHARDS > 1"):
        task.enqueue(1)
    by_account = declared(limit=[("stripe", lambda account: account), ("mail", lambda account: account)])
    shards = {by_account.enqueue(number % 5)._shard: number % 5 for number in range(40)}
    assert len(shards) <= 3
    for number in range(5):
        assert len({by_account.enqueue(number)._shard for _ in range(3)}) == 1


def test_a_key_is_found_in_the_shard_of_its_limit(settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 3}
    task = declared(limit=("stripe", lambda account: account), key=lambda account: f"account-{account}")
    jobs = {number: task.enqueue(number) for number in range(8)}
    for number, job in jobs.items():
        for found in (
            task.get_job(key=f"account-{number}"),
            task.get_job(key=f"account-{number}", limit=("stripe", number)),
        ):
            assert found and found.id == job.id


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"stripe": {"rate": "abc"}}, "must be text such as '100/s'"),
        ({"stripe": {"rate": "0/s"}}, "must be text such as '100/s'"),
        ({"stripe": {"rate": 100}}, "must be text such as '100/s'"),
        ({"stripe": {"rate": "20000/s"}}, "must be at most 10,000/s"),
        ({"stripe": {"rate": "1/s", "burst": 0}}, "'burst'] must be a whole number, 1 to"),
        ({"stripe": {"max_running": 0}}, "'max_running'] must be a whole number, 1 to"),
        ({"stripe": {"max_running": True}}, "'max_running'] must be a whole number, 1 to"),
        ({"stripe": {}}, "limits nothing"),
        ({"stripe": {"max_running": 1, "burst": 2}}, "has a burst, which only a rate uses"),
        ({"stripe": {"rat": "1/s"}}, "has the unknown key 'rat' (did you mean 'rate'?)"),
        ({"stripe": "1/s"}, "must be a dict of rate, burst, max_running"),
        ({"": {"rate": "1/s"}}, "the name ''"),
        (["stripe"], "of the options rate, burst and max_running, got list"),
    ],
)
def test_wrong_settings_are_refused(limits: Any, text: str) -> None:
    config, problems = read_config({"REDIS": "redis://localhost", "LIMITS": limits})
    assert config is None
    assert text in str(problems)


def test_the_default_burst_is_what_comes_in_a_tenth_of_a_second() -> None:
    config, problems = read_config(
        {"REDIS": "redis://localhost", "LIMITS": {"fast": {"rate": "100/s"}, "slow": {"rate": "5/s"}}}
    )
    assert config, problems
    assert (config.tasks.limits["fast"].burst, config.tasks.limits["slow"].burst) == (10, 1)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("strip",), {}, UnknownLimit),
        ((7,), {}, TypeError),
        (("stripe", 1.5), {}, ValueError),
        (("stripe",), {"cost": 6}, ValueError),
        (("mail",), {"cost": -3}, ValueError),
        (("mail",), {"cost": 0}, ValueError),
        (("mail",), {"cost": 65_536}, ValueError),
        (("mail",), {"cost": "1"}, ValueError),
        (("stripe",), {"block": -1}, InvalidDelay),
        (("stripe",), {"block": "5"}, InvalidDelay),
    ],
)
def test_a_block_with_a_wrong_limit_is_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        limit(*arguments, **options)


def test_a_wrong_time_to_back_off_is_refused() -> None:
    for wrong in (-1, "5", None):
        with pytest.raises(InvalidDelay, match=r"the delay of back_off\(\)"):
            limit("stripe").back_off(wrong)  # type: ignore[arg-type]


def test_limits_and_debounce_go_together(delayq: DelayQ) -> None:
    task = declared(limit="mail", key="k", unique=Debounce(5))
    first = task.enqueue(1)
    assert task.enqueue(2).id == first.id
    delayq.advance(10, run=True)
    assert [job.args for job in delayq.ran] == [[2]]


def test_jobs_run_one_after_the_other_in_a_test(delayq: DelayQ) -> None:
    task = declared(limit="mail")
    for number in range(3):
        task.enqueue(number)
    delayq.run_due()
    assert [job.args for job in delayq.ran] == [[0], [1], [2]]


def test_a_test_advances_to_the_time_at_which_a_rate_lets_jobs_in(delayq: DelayQ) -> None:
    task = declared(limit="slow")
    for number in range(3):
        task.enqueue(number)
    delayq.run_due()
    assert len(delayq.ran) == 1
    delayq.advance(600, run=True)
    assert len(delayq.ran) == 2
    delayq.advance(600, run=True)
    assert len(delayq.ran) == 3


def test_a_test_advances_to_moments_between_two_microseconds(delayq: DelayQ) -> None:
    task = declared(limit="thirds")
    for number in range(5):
        task.enqueue(number)
    delayq.advance(10, run=True)
    assert len(delayq.ran) == 5


def test_a_job_is_found_by_its_key_and_a_limit_of_the_call(settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 5}
    task = declared()
    for account in range(12):
        made = task.using(limit=("mail", account), key=f"k{account}").enqueue(account)
        found = task.get_job(key=f"k{account}", limit=("mail", account))
        assert found is not None
        assert found.id == made.id


def test_django_tasks_have_limits(delayq: DelayQ) -> None:
    from django_delayq.backend.task_options import TaskOptions

    assert TaskOptions.read({"limit": "stripe", "cost": 2}, of="TASKS").cost == 2
    with pytest.raises(ValueError, match="TASKS: on_limit must be"):
        TaskOptions.read({"on_limit": "never"}, of="TASKS")
