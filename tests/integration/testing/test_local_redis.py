"""LocalRedisServer: real servers that start, accept commands, and end with their owner, even if it is killed."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from django_delayq.testing import local_redis as local_redis
from django_delayq.testing.local_redis import LocalRedisServer, ServerNotStarted, free_port, responds
from tests.subprocesses import until

StartRedis = Callable[..., LocalRedisServer]


def owner(server: Path, lines: str) -> subprocess.Popen[str]:
    """Start a process that owns a private server, named `server`, and runs `lines`."""
    script = f"""
        import os, sys
        from pathlib import Path
        from django_delayq.testing.local_redis import LocalRedisServer
        server = LocalRedisServer(server=Path({str(server)!r})).start()
        print(server.folder, server.pid, flush=True)
        {lines}
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def started_by(process: subprocess.Popen[str]) -> tuple[Path, int]:
    """Return the folder and the process id of an owner's server."""
    assert process.stdout
    folder, _, pid = process.stdout.readline().strip().rpartition(" ")
    return Path(folder), int(pid)


def group_exists(group: int) -> bool:
    """Return whether a process group has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_server_runs_inside_the_block_and_is_gone_after_it(server_program: Path) -> None:
    with LocalRedisServer(server=server_program) as server, server.client() as client:
        folder, pid = server.folder, server.pid
        assert client.ping()
        assert client.info("server")["process_id"] == pid
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ServerNotStarted):
        _ = server.url


def test_server_on_a_port_listens_on_the_loopback_only(start_redis: StartRedis) -> None:
    server = start_redis(port=0)
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    with server.client() as client:
        assert client.ping()
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_killed_server_restarts_with_its_url_and_its_files(start_redis: StartRedis) -> None:
    server = start_redis(port=0, options={"appendonly": "yes", "appendfsync": "always"})
    url, first = server.url, server.pid
    with server.client() as client:
        client.set("kept", "yes")
        server.kill()
        assert server.pid is None
        server.restart()
        assert client.get("kept") == b"yes"
    assert server.url == url
    assert server.pid != first


def test_restart_of_a_server_without_files_forgets_everything(start_redis: StartRedis) -> None:
    server = start_redis()
    with server.client() as client:
        client.set("kept", "no")
        server.restart()
        assert client.get("kept") is None


def test_stop_is_safe_to_repeat(start_redis: StartRedis) -> None:
    server = start_redis()
    server.stop()
    server.stop()
    assert server.start().pid


def test_server_that_refuses_its_options_shows_its_log_and_leaves_no_folder(start_redis: StartRedis) -> None:
    with pytest.raises(ServerNotStarted, match="no-such-option"):
        start_redis(options={"no-such-option": "1"})


def test_options_may_not_take_the_server_out_of_its_folder(start_redis: StartRedis) -> None:
    with pytest.raises(ValueError, match="leave dir, port to LocalRedisServer"):
        start_redis(options={"dir": "/", "port": "1"})


def test_server_of_another_owner_on_the_port_is_an_error(start_redis: StartRedis) -> None:
    other = start_redis(port=0)
    with pytest.raises(ServerNotStarted):
        start_redis(port=other.port)


def test_free_port_taken_before_the_server_binds_it_is_replaced(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start_redis(port=0)
    found = iter([other.port, other.port, free_port()])
    monkeypatch.setattr(local_redis, "free_port", lambda: next(found))
    server = start_redis(port=0)
    assert server.port != other.port
    with server.client() as client:
        assert client.info("server")["process_id"] == server.pid


def test_start_without_a_free_port_raises(start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    other = start_redis(port=0)
    monkeypatch.setattr(local_redis, "free_port", lambda: other.port)
    with pytest.raises(ServerNotStarted, match="already in use"):
        start_redis(port=0)


def test_owner_that_forgets_to_stop_ends_its_server_at_exit(server_program: Path) -> None:
    with owner(server_program, "") as finished:
        folder, _ = started_by(finished)
    assert finished.returncode == 0
    assert not folder.exists()


def test_fork_of_the_owner_does_not_end_the_server(server_program: Path) -> None:
    lines = "(os.fork() or sys.exit()) and os.wait(); print(server.client().ping())"
    with owner(server_program, lines) as finished:
        assert finished.stdout
        assert finished.stdout.read().splitlines()[1:] == ["True"]


def test_server_and_folder_end_with_a_killed_owner(server_program: Path, redis_server: LocalRedisServer) -> None:
    with owner(server_program, "sys.stdin.read()") as killed:
        folder, _ = started_by(killed)
        assert responds(folder / "redis.sock")
        killed.kill()
    until(lambda: not folder.exists(), what="the folder to be removed")
    assert not responds(folder / "redis.sock")
    assert responds(redis_server.socket)


def test_suspended_server_ends_with_a_killed_owner(server_program: Path) -> None:
    with owner(server_program, "sys.stdin.read()") as killed:
        folder, pid = started_by(killed)
        os.kill(pid, signal.SIGSTOP)
        killed.kill()
    until(lambda: not folder.exists() and not Path(f"/proc/{pid}").exists(), what="the end of the suspended server")


@pytest.mark.parametrize("last", ["kill", "restart"])
def test_folder_ends_with_an_owner_killed_after_its_server(last: str, server_program: Path) -> None:
    with owner(server_program, f"server.kill(); server.{last}(); print(flush=True); sys.stdin.read()") as killed:
        folder, _ = started_by(killed)
        assert killed.stdout
        killed.stdout.readline()
        assert responds(folder / "redis.sock") == (last == "restart")
        killed.kill()
    until(lambda: not folder.exists(), what="the folder to be removed")
    assert not responds(folder / "redis.sock")


def test_server_outlives_the_thread_that_started_it(start_redis: StartRedis) -> None:
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(start_redis).result()
    assert responds(server.socket)


def test_restart_leaves_one_watcher(start_redis: StartRedis) -> None:
    server = start_redis()
    first = server.pid
    assert first
    server.kill()
    # While the watcher lives, no other process can get the id of the dead server.
    os.killpg(first, 0)
    server.restart()
    until(lambda: not group_exists(first), what="the end of the first watcher")


def test_stopped_server_leaves_no_process(start_redis: StartRedis) -> None:
    server = start_redis()
    pid = server.pid
    assert pid
    server.stop()
    until(lambda: not group_exists(pid), what="the end of the watcher")


def test_long_temporary_folder_does_not_break_the_socket(
    start_redis: StartRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert responds(start_redis().socket)


def test_free_port_is_free_and_leaves_room_for_a_cluster_bus() -> None:
    port = free_port()
    assert port + 10000 < 65536
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", port))
