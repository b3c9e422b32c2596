"""--http: what a worker or dispatcher answers on an address of its own."""

import json
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from django_delayq import get_store
from django_delayq.monitoring.http_server import MonitoringServer
from django_delayq.monitoring.liveness import check_liveness
from django_delayq.monitoring.pulse import Pulse
from django_delayq.processes.service import Runnable, Service
from django_delayq.testing.local_redis import LocalRedisServer
from tests.admin.reports import tell
from tests.sample_app.tasks import noop
from tests.shard_apis import HOUR, ShardApis
from tests.subprocesses import Processes, until


def ask(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of a response."""
    try:
        request = urllib.request.Request(f"http://{address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def samples(text: str) -> dict[str, float]:
    """Return each sample of a scrape, by its name and the values of its labels, in their order."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Blocked(Runnable):
    """A loop whose step waits for the test."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def step(self) -> float | None:
        """Wait, then end."""
        self.go_on.wait(60)
        return None


@pytest.fixture
def serve(delayq_settings: Any) -> Iterator[Callable[..., str]]:
    """Serve the store of the test in this process; return the address."""
    servers: list[MonitoringServer] = []

    def start(*services: Service, patience: float = 30.0) -> str:
        pulse = Pulse(services, patience=patience)
        servers.append(MonitoringServer("127.0.0.1", 0, store=get_store(), pulse=pulse))
        servers[-1].start()
        return servers[-1].address

    yield start
    for server in servers:
        server.close()


def test_a_process_answers_about_the_jobs_that_ran(processes: Processes) -> None:
    done = [noop.using(queue="mail").enqueue(number) for number in range(3)]
    noop.after(600).enqueue(4)
    worker = processes.start("run_worker", "--drain", "--queues", "mail")
    processes.until(lambda: not worker.running, what="the end of the worker")
    assert {job.refresh().state for job in done} <= {"gone", "done"}
    dispatcher = processes.start("run_dispatcher", "--http", "127.0.0.1:0")
    processes.until(lambda: "Monitoring at http://" in dispatcher.output, what="its address")
    address = dispatcher.output.split("Monitoring at http://")[1].split("/metrics")[0]
    status, text = ask(address, "/metrics")
    found = samples(text)
    assert status == 200
    assert (found["delayq_queue_enqueued_total mail"], found[f"delayq_task_enqueued_total {noop.name}"]) == (3, 4)
    assert found["delayq_queue_outcomes_total done mail"] == 3
    assert found[f"delayq_task_outcomes_total done {noop.name}"] == 3
    assert found["delayq_queue_run_seconds_count mail"] == found["delayq_queue_start_delay_seconds_count mail"] == 3
    assert found["delayq_jobs default scheduled"] == 1
    assert found["delayq_jobs_due 300"] == 0 and found["delayq_jobs_due 3600"] == 1
    assert ask(address, "/live") == (200, "ok\n")
    dispatcher.send(15)
    assert dispatcher.wait() == 0


def test_the_same_as_json(serve: Callable[..., str]) -> None:
    noop.using(queue="mail").enqueue(1)
    noop.after(600).enqueue(2)
    status, text = ask(serve(), "/stats.json")
    found = json.loads(text)
    assert status == 200
    assert (found["ready"], found["scheduled"], found["queues"]["mail"]["ready"]) == (1, 1, 1)
    assert found["due_within"] == {"300": 0, "3600": 1, "86400": 1}
    assert found["delayq_workers_needed"] == 1


def test_a_loop_that_is_stuck_is_not_live(serve: Callable[..., str]) -> None:
    blocked = Blocked()
    service = Service(blocked, name="Worker of a test")
    thread = threading.Thread(target=service.run)
    # The loop counts as stuck as soon as it is in a step, and not before it has begun.
    address = serve(service, patience=0.0)
    assert ask(address, "/live") == (200, "ok\n")
    thread.start()
    try:
        until(lambda: ask(address, "/live")[0] == 503, what="the stuck loop to be seen")
        assert "Worker of a test has not gone on for " in ask(address, "/live")[1]
    finally:
        blocked.go_on.set()
        thread.join()
    # It has ended: nothing is stuck.
    assert ask(address, "/live") == (200, "ok\n")


class Overdue(Runnable):
    """A worker whose jobs run in a loop of their own, which one of them blocks."""

    def overdue(self) -> float:
        """Return a minute."""
        return 60.0


def test_a_blocked_loop_of_jobs_is_not_live(serve: Callable[..., str]) -> None:
    status, text = ask(serve(Service(Overdue(), name="Worker of a test")), "/live")
    assert (status, text) == (503, "Worker of a test has not gone on for 60 s.\n")


def test_without_a_process_that_serves_it_is_not_ready(serve: Callable[..., str]) -> None:
    status, text = ask(serve(), "/ready")
    assert status == 503
    assert "No dispatcher and no worker is running" in text


def test_without_redis_it_is_live_but_not_ready(
    start_redis: Callable[..., LocalRedisServer], delayq_settings: Any, serve: Callable[..., str]
) -> None:
    own_server = start_redis()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": own_server.url}
    address = serve()
    assert ask(address, "/metrics")[0] == 200
    own_server.stop()
    assert ask(address, "/live") == (200, "ok\n")
    for path in ("/ready", "/metrics", "/stats.json"):
        status, text = ask(address, path)
        assert (status, "Redis" in text) == (503, True), text


def test_it_listens_on_ipv6(delayq_settings: Any) -> None:
    try:
        server = MonitoringServer("::1", 0, store=get_store(), pulse=Pulse((), patience=30))
    except OSError as error:
        # Containers often have IPv4 alone, and nothing else stands in for an address of IPv6.
        pytest.skip(f"this machine has no IPv6: {error}")
    server.start()
    try:
        assert server.address.startswith("[::1]:")
        assert ask(server.address, "/live") == (200, "ok\n")
    finally:
        server.close()


def test_a_queue_that_nobody_serves_keeps_no_process_from_being_ready(
    apis: ShardApis, serve: Callable[..., str]
) -> None:
    tell(apis, queues=["mail"], slots=4)
    raw_id = apis.add(queue="bulk")
    apis.clock.advance(HOUR)
    tell(apis, queues=["mail"], slots=4)
    assert apis.where(raw_id) == ["ready:bulk"]
    assert check_liveness(apis.store).unserved
    assert ask(serve(), "/ready") == (200, "ok\n")


def test_a_process_that_stops_is_not_ready(serve: Callable[..., str]) -> None:
    blocked = Blocked()
    service = Service(blocked, name="Worker of a test")
    thread = threading.Thread(target=service.run)
    address = serve(service)
    thread.start()
    try:
        service.stop()
        assert ask(address, "/ready") == (503, "This process stops.\n")
        assert ask(address, "/live") == (200, "ok\n")
    finally:
        blocked.go_on.set()
        thread.join()


def test_a_forked_process_keeps_no_address(serve: Callable[..., str]) -> None:
    address = serve()
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        # `os.fork()` has called its handlers. The process lives until the test closes its socket.
        ours.close()
        theirs.send(b"1")
        theirs.recv(1)
        os._exit(0)
    theirs.close()
    try:
        assert ours.recv(1) == b"1"
        assert ask(address, "/live") == (200, "ok\n")
        listening = {
            line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if _port(line, address)
        }
        held = {os.readlink(each) for each in Path(f"/proc/{child}/fd").iterdir()}
        assert listening and not {f"socket:[{inode}]" for inode in listening} & held
    finally:
        ours.close()
        os.waitpid(child, 0)


def _port(line: str, address: str) -> bool:
    """Return whether a line of /proc/net/tcp is of the socket that listens at an address."""
    _, local, _, state, *_ = line.split()
    return state == "0A" and int(local.rpartition(":")[2], 16) == int(address.rpartition(":")[2])


def test_other_paths_and_methods_are_refused(serve: Callable[..., str]) -> None:
    address = serve()
    assert ask(address, "/")[0] == ask(address, "/metrics/x")[0] == 404
    assert "/metrics, /stats.json, /live, /ready" in ask(address, "/")[1]
    assert ask(address, "/live?x=1") == (200, "ok\n")
    assert ask(address, "/live", "HEAD") == (200, "")
    assert ask(address, "/live", "POST")[0] == 501


@pytest.mark.parametrize("text", ["9180", "localhost", ":80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_that_makes_no_sense_is_refused(text: str, processes: Processes) -> None:
    dispatcher = processes.start("run_dispatcher", f"--http={text}")
    assert dispatcher.wait() == 1
    assert "--http must be a host and a port, such as 127.0.0.1:9180" in dispatcher.output


def test_an_address_in_use_is_refused(processes: Processes, serve: Callable[..., str]) -> None:
    worker = processes.start("run_worker", f"--http={serve()}")
    assert worker.wait() == 1
    assert "--http cannot listen on" in worker.output


def test_several_processes_have_no_address(processes: Processes) -> None:
    worker = processes.start("run_worker", "--processes=2", "--http=127.0.0.1:0")
    assert worker.wait() == 1
    assert "--http is of one process" in worker.output
