"""run_dispatcher as a process: how it starts, what it promotes, how it ends."""

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many
from tests.sample_app import tasks
from tests.subprocesses import Processes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_code_0(processes: Processes, number: signal.Signals) -> None:
    dispatcher = processes.dispatcher()
    dispatcher.send(number)
    assert dispatcher.wait() == 0
    assert "Traceback" not in dispatcher.output


def test_it_prints_what_it_serves_also_into_a_file(processes: Processes) -> None:
    # Output to a file or pipe is buffered: without a flush it comes at the end, or never.
    dispatcher = processes.start("run_dispatcher", PYTHONUNBUFFERED="")
    processes.until(lambda: f"Dispatcher {dispatcher.pid} serves" in dispatcher.output, what="its first line")
    assert "prefix 'delayq'" in dispatcher.output


def test_it_promotes_due_jobs_and_no_others(processes: Processes) -> None:
    due, later = enqueue_many([tasks.noop.after(hours=1).job() for _ in range(2)])
    assert due.state == later.state == "scheduled"
    assert due.reschedule(delay=0.3)
    processes.dispatcher()
    processes.until_state(due, "ready")
    assert later.refresh().state == "scheduled"


def test_it_promotes_more_jobs_than_one_step_takes(processes: Processes, client: Redis) -> None:
    enqueue_many([tasks.noop.using(delay=0.2, queue=f"queue {n % 3}").job() for n in range(1_300)])
    processes.dispatcher()
    ready = [processes.keys.ready(f"queue {n}") for n in range(3)]
    processes.until(lambda: sum(map(client.zcard, ready)) == 1_300, what="all jobs to be ready")


def test_it_ends_when_its_input_closes(processes: Processes) -> None:
    dispatcher = processes.start("run_dispatcher", "--until-stdin-closes", stdin=subprocess.PIPE)
    processes.until(lambda: "serves" in dispatcher.output, what="the dispatcher's start")
    assert dispatcher.running
    assert dispatcher.process.stdin is not None
    dispatcher.process.stdin.close()
    assert dispatcher.wait() == 0


def test_a_signal_ends_it_with_code_0_also_while_its_input_is_open(processes: Processes) -> None:
    dispatcher = processes.dispatcher("--until-stdin-closes", stdin=subprocess.PIPE)
    assert dispatcher.end() == 0
    assert "Fatal" not in dispatcher.output


def test_an_unknown_option_is_refused_without_a_traceback(processes: Processes) -> None:
    dispatcher = processes.start("run_dispatcher", "--fast")
    assert dispatcher.wait() == 2
    assert "--fast" in dispatcher.output
    assert "Traceback" not in dispatcher.output


@pytest.mark.parametrize("command", ["run_dispatcher", "run_worker"])
def test_a_server_that_may_evict_jobs_is_refused(
    processes: Processes, start_redis: Callable[..., Any], command: str
) -> None:
    processes.configure(REDIS=start_redis(options={"maxmemory-policy": "allkeys-lru"}).url)
    refused = processes.start(command)
    assert refused.wait() == 1
    assert "CommandError" in refused.output
    assert "allkeys-lru" in refused.output
    assert "Traceback" not in refused.output


@pytest.mark.parametrize("command", ["run_dispatcher", "run_worker"])
def test_a_wrong_password_is_waited_for_and_not_shown(
    processes: Processes, start_redis: Callable[..., Any], command: str
) -> None:
    server = start_redis(port=0, options={"requirepass": "right"})
    processes.configure(REDIS=f"redis://:canary@127.0.0.1:{server.port}/0")
    refused = processes.start(command)
    processes.until(lambda: "waits for Redis" in refused.output, what="it to wait")
    assert "DELAYQ['REDIS']" in refused.output
    assert refused.end() == 0
    assert "canary" not in refused.output
    assert "Traceback" not in refused.output


@pytest.mark.parametrize("command", ["run_dispatcher", "run_worker"])
def test_an_unknown_setting_is_named(processes: Processes, command: str) -> None:
    processes.configure()
    settings = processes.folder / "process_settings.py"
    settings.write_text(settings.read_text() + "DELAYQ['LEESE'] = 30\n")
    refused = processes.start(command)
    assert refused.wait() == 1
    assert "LEESE" in refused.output
    assert "'LEASE'" in refused.output
    assert "Traceback" not in refused.output


def test_changed_shards_are_refused_while_keyed_jobs_wait_unless_forced(processes: Processes) -> None:
    tasks.noop.using(delay=3600, key="one").enqueue()
    processes.configure(SHARDS=3)
    refused = processes.start("run_dispatcher")
    assert refused.wait() == 1
    assert "--force-shards" in refused.output
    assert "Traceback" not in refused.output
    forced = processes.start("run_dispatcher", "--force-shards")
    processes.until(lambda: "serves" in forced.output, what="the dispatcher's start")


def test_each_shard_is_served(processes: Processes) -> None:
    processes.configure(SHARDS=3)
    jobs = [tasks.noop.after(0.2).enqueue(n) for n in range(30)]
    assert len({job.id.split("-")[-1] for job in jobs}) > 1
    processes.start("run_dispatcher")
    for job in jobs:
        processes.until_state(job, "ready")


def test_with_verbosity_0_it_prints_nothing(processes: Processes) -> None:
    dispatcher = processes.dispatcher("-v", "0")
    assert dispatcher.end() == 0
    assert dispatcher.output == ""
