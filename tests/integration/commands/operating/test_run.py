"""delayq_run: one job in the foreground, with the outcome of a worker and without its time limits."""

import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import RetryLater, RetryPolicy, Snooze, current_job, delayed_task, get_job, get_store, queue
from django_delayq.job.attempts import AttemptHistory
from django_delayq.management.operating import JOB_FAILED, NOT_CONFIRMED, NOT_FOUND, RUNS_ELSEWHERE
from django_delayq.metrics import ALL_JOBS
from django_delayq.store.claims import Claims
from django_delayq.task import registry
from django_delayq.worker.claiming.leases import HeldClaims
from tests.sample_app import tasks
from tests.subprocesses import Processes

#: What the tasks of this file do: the test puts a function here.
body: list[Callable[[], object]] = []


@delayed_task(name="operating.runs", retry=RetryPolicy(max_attempts=2), timeout=0.2, store_result=60)
def runs() -> object:
    """Do what the test says."""
    return body[-1]()


@pytest.fixture(autouse=True)
def _delayq(delayq_settings: Any, redis_url: str) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url, "LEASE": 1, "ON_COMMIT": False}


def run(*options: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, its output and its errors."""
    out, err, code = StringIO(), StringIO(), 0
    try:
        call_command("delayq_run", *options, stdout=out, stderr=err)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def refused(*options: str) -> CommandError:
    """Run the command, which refuses; return its error."""
    with pytest.raises(CommandError) as raised:
        run(*options)
    return raised.value


@pytest.mark.parametrize("delay", [0, 3_600])
def test_a_waiting_job_runs_here_and_is_done(delay: int) -> None:
    ran: list[Any] = []
    body.append(lambda: ran.append((threading.current_thread(), current_job().attempt)))
    handle = runs.after(delay).enqueue()
    code, text, _ = run(handle.id, "--yes")
    assert code == 0
    assert ran == [(threading.main_thread(), 1)]
    assert re.match(rf"Job {handle.id}: succeeded after \d+\.\d{{3}} s", text)
    assert handle.refresh().state == "done"
    assert get_store().dashboard(0).snapshot().processes == []
    assert get_store().dashboard(0).snapshot().hour(ALL_JOBS).done == 1


def test_the_outcome_is_printed_as_json() -> None:
    body.append(lambda: None)
    code, text, _ = run(runs.enqueue().id, "--yes", "--json")
    facts = json.loads(text)
    assert (code, facts["outcome"], facts["attempt"], facts["end"]) == (0, "succeeded", 1, "done")


def test_a_failure_is_printed_and_the_policy_decides() -> None:
    def fails() -> None:
        raise ValueError("as asked")

    body.append(fails)
    handle = runs.enqueue()
    code, text, errors = run(handle.id, "--yes")
    assert code == JOB_FAILED
    assert "ValueError: as asked" in errors
    assert "failed after" in text
    assert "to be run again" in text
    assert handle.refresh().state == "scheduled"
    assert run(handle.id, "--yes")[0] == JOB_FAILED
    assert handle.refresh().state == "dead"
    error = refused(handle.id, "--yes")
    assert f"delayq_requeue {handle.id}" in str(error)
    assert error.returncode == NOT_FOUND


def test_control_characters_of_an_error_do_not_reach_the_terminal() -> None:
    def fails() -> None:
        raise ValueError("\x1b[2Jcleared\x07")

    body.append(fails)
    _, text, errors = run(runs.enqueue().id, "--yes")
    assert "cleared" in errors
    assert "\x1b" not in text + errors and "\x07" not in text + errors


def test_no_limit_ends_it_and_its_lease_is_renewed(redis_url: str) -> None:
    """It runs longer than its time limit and than a lease, while a dispatcher looks for expired leases."""
    store = get_store()
    keys, client = store.shards[0].keys, store.shards[0].client

    def stays() -> str:
        first = client.zrange(keys("leases"), 0, 0, withscores=True)[0][1]
        for _ in range(500):
            if client.zrange(keys("leases"), 0, 0, withscores=True)[0][1] >= first + 2_000_000:
                return "renewed"
            threading.Event().wait(0.02)
        return "not renewed"

    body.append(stays)
    handle = runs.enqueue()
    assert run(handle.id, "--yes")[0] == 0
    assert handle.refresh().result == "renewed"


def test_a_job_that_runs_elsewhere_is_refused() -> None:
    handle = runs.enqueue()
    worker = Claims(get_store().shards[0])
    worker.settle_and_claim(worker.prepare(queues=["default"], want=1, worker_name="host/7"))
    error = refused(handle.id, "--yes")
    assert "runs on host/7 since" in str(error)
    assert error.returncode == RUNS_ELSEWHERE


@pytest.mark.parametrize("error", [KeyboardInterrupt, __import__("bdb").BdbQuit])
@pytest.mark.parametrize(("delay", "state"), [(0, "ready"), (3_600, "scheduled")])
def test_a_run_that_a_person_ends_counts_no_attempt(error: type[BaseException], delay: int, state: str) -> None:
    def ends() -> None:
        raise error

    body.append(ends)
    handle = runs.after(delay).enqueue()
    due = handle.due
    code, text, _ = run(handle.id, "--yes")
    assert code == JOB_FAILED
    assert "interrupted" in text
    assert handle.refresh().state == state
    assert handle.due is not None
    assert due is not None
    # The due time of a ready job is exact to the millisecond.
    assert abs(handle.due - due) < timedelta(milliseconds=1)
    assert (handle.due == due) or not delay
    row = get_store().lookup(0).find(handle._raw_id)
    assert row.attempts.ended == 0


@pytest.mark.parametrize("ending", [ValueError("as asked"), RetryLater(delay=60), Snooze(minutes=1)], ids=repr)
def test_a_run_before_its_time_is_repeated_at_its_time(ending: Exception) -> None:
    def ends() -> None:
        raise ending

    body.append(ends)
    handle = runs.after(3_600).enqueue()
    due = handle.due
    run(handle.id, "--yes")
    assert handle.refresh().state == "scheduled"
    assert handle.due == due
    row = get_store().lookup(0).find(handle._raw_id)
    assert row.attempts.ended == (not isinstance(ending, Snooze))


def test_a_command_that_is_killed_leaves_its_job_to_its_time(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=1)
    processes.dispatcher()
    processes.worker()
    handle = tasks.wait_for.after(days=9).enqueue(str(gate))
    due = handle.due
    command = processes.start("delayq_run", handle.id, "--yes")
    processes.until_runs(1)
    command.kill()
    processes.until_state(handle, "ready", "scheduled")
    assert (handle.state, handle.due) == ("scheduled", due)
    assert get_store().lookup(0).find(handle._raw_id).attempts.ended == 1
    assert len(processes.runs()) == 1


def test_a_job_that_is_asked_to_stop_sees_it() -> None:
    def looks() -> None:
        handle.stop(grace=60)
        for _ in range(500):
            if current_job().should_stop:
                raise RuntimeError("stops")
            threading.Event().wait(0.02)

    body.append(looks)
    handle = runs.enqueue()
    code, text, _ = run(handle.id, "--yes")
    assert (code, "stopped" in text, "cancelled" in text) == (0, True, True)


def test_code_that_was_asked_to_stop_before_it_began_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[None] = []
    body.append(lambda: ran.append(None))
    handle = runs.enqueue()
    after_claim(monkeypatch, lambda: handle.stop(grace=60))
    code, text, _ = run(handle.id, "--yes")
    assert (code, "cancelled" in text, ran) == (0, True, [])
    assert handle.refresh().state == "cancelled"


def test_code_whose_lease_was_lost_before_it_began_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[None] = []
    body.append(lambda: ran.append(None))
    handle, shard = runs.enqueue(), get_store().shards[0]
    after_claim(monkeypatch, lambda: shard.client.delete(shard.keys("leases")))
    code, text, _ = run(handle.id, "--yes")
    assert (code, "its lease was lost" in text, ran) == (JOB_FAILED, True, [])


def test_a_scheduled_job_that_could_not_begin_waits_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker cannot trust the lease any more, but nobody has taken it."""
    ran: list[None] = []
    body.append(lambda: ran.append(None))
    handle = runs.after(3_600).enqueue()
    monkeypatch.setattr(HeldClaims, "trusts", lambda *_: False)
    code, text, _ = run(handle.id, "--yes")
    assert (code, "unstarted" in text, ran) == (JOB_FAILED, True, [])
    assert handle.refresh().state == "scheduled"
    assert get_store().lookup(0).find(handle._raw_id).attempts == AttemptHistory()


def after_claim(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen between the claim of a job and its first heartbeat."""
    claim_one = Claims.claim_one

    def claimed(*args: Any, **options: Any) -> Any:
        claim = claim_one(*args, **options)
        happens()
        return claim

    monkeypatch.setattr(Claims, "claim_one", claimed)


def test_a_paused_queue_does_not_hinder_it() -> None:
    body.append(lambda: None)
    queue("default").pause()
    assert run(runs.enqueue().id, "--yes")[0] == 0


def test_nothing_runs_without_a_yes_or_with_a_dry_run() -> None:
    handle = runs.enqueue()
    assert run(handle.id, "--dry-run")[1].startswith("Would run runs(")
    error = refused(handle.id)
    assert "add --yes" in str(error)
    assert error.returncode == NOT_CONFIRMED
    assert handle.refresh().state == "ready"


def test_what_is_no_waiting_job_is_refused() -> None:
    assert refused("nonsense", "--yes").returncode == NOT_FOUND
    handle = runs.enqueue()
    handle.cancel()
    assert "does not wait" in str(refused(handle.id, "--yes"))
    handle = tasks.noop.enqueue()
    with registry.override({}):
        assert "No task is registered as" in str(refused(handle.id, "--yes"))
    assert handle.refresh().state == "ready"


def test_the_debugger_opens_where_the_task_raises(processes: Processes) -> None:
    handle = tasks.fail.enqueue()
    command = processes.start("delayq_run", handle.id, "--yes", "--pdb")
    assert command.wait() == JOB_FAILED
    found = get_job(handle.id)
    assert found is not None
    assert "tests/sample_app/tasks.py" in command.output
    assert "(Pdb)" in command.output
