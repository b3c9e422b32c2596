"""LocalRedisServer: real servers that start, answer and end with their owner, whatever the owner's end."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from django_delayq.testing import local_redis as private_redis
from django_delayq.testing.local_folder import PREFIX, remove_orphans
from django_delayq.testing.local_redis import LocalRedisServer, ServerNotStarted, answers, demo_url, free_port

StartRedis = Callable[..., LocalRedisServer]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of our own: in the common one another run's start would find our orphans first."""
    # Not tmp_path, too long for a socket; asked for, because pytest makes it where tempfile points at first.
    with tempfile.TemporaryDirectory(prefix="dq-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder).resolve()
        remove_orphans()


def owner(server: Path, lines: str) -> subprocess.Popen[str]:
    """Start a process that owns a private server named `server` and then runs `lines`."""
    script = f"""
        import os, sys
        from pathlib import Path
        from django_delayq.testing.local_redis import LocalRedisServer
        server = LocalRedisServer(server=Path({str(server)!r})).start()
        print(server.folder, flush=True)
        {lines}
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def orphan(server: Path) -> Path:
    """Return the folder of a running server whose owner was killed."""
    with owner(server, "sys.stdin.read()") as killed:
        assert killed.stdout
        folder = Path(killed.stdout.readline().strip())
        killed.kill()
    assert answers(folder / "redis.sock")
    return folder


def test_server_answers_inside_the_block_and_is_gone_after_it(server_program: Path) -> None:
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


def test_server_on_a_port_listens_on_the_loopback_alone(start_redis: StartRedis) -> None:
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


def test_port_of_somebody_else_is_not_taken_for_ours(start_redis: StartRedis) -> None:
    other = start_redis(port=0)
    with pytest.raises(ServerNotStarted):
        start_redis(port=other.port)


def test_free_port_taken_before_the_server_binds_it_is_changed_for_another(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start_redis(port=0)
    found = iter([other.port, other.port, free_port()])
    monkeypatch.setattr(private_redis, "free_port", lambda: next(found))
    server = start_redis(port=0)
    assert server.port != other.port
    with server.client() as client:
        assert client.info("server")["process_id"] == server.pid


def test_server_that_finds_every_free_port_taken_says_so(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start_redis(port=0)
    monkeypatch.setattr(private_redis, "free_port", lambda: other.port)
    with pytest.raises(ServerNotStarted, match="already in use"):
        start_redis(port=0)


def test_owner_that_forgets_to_stop_ends_its_server_at_exit(server_program: Path) -> None:
    with owner(server_program, "") as finished:
        assert finished.stdout
        folder = Path(finished.stdout.readline().strip())
    assert finished.returncode == 0
    assert not folder.exists()


def test_fork_of_the_owner_does_not_end_the_server(server_program: Path) -> None:
    lines = "(os.fork() or sys.exit()) and os.wait(); print(server.client().ping())"
    with owner(server_program, lines) as finished:
        assert finished.stdout
        assert finished.stdout.read().splitlines()[1:] == ["True"]


def test_next_start_removes_the_server_of_a_killed_owner(
    server_program: Path, redis_server: LocalRedisServer, start_redis: StartRedis, temporary: Path
) -> None:
    folder = orphan(server_program)
    start_redis()
    assert not answers(folder / "redis.sock")
    assert not folder.exists()
    assert answers(redis_server.socket)


def test_suspended_server_of_a_killed_owner_is_removed_too(server_program: Path, temporary: Path) -> None:
    folder = orphan(server_program)
    os.kill(int((folder / "server.pid").read_text()), signal.SIGSTOP)
    assert folder in remove_orphans()


def test_stranger_with_the_pid_of_a_dead_server_lives_on(temporary: Path) -> None:
    folder = temporary / f"{PREFIX}dead"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (folder / "server.pid").write_text(str(stranger.pid))
        assert folder in remove_orphans()
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_folder_that_was_only_just_made_is_left_alone(temporary: Path) -> None:
    folder = temporary / f"{PREFIX}new"
    folder.mkdir()
    assert folder not in remove_orphans()
    os.utime(folder, (0, 0))
    assert folder in remove_orphans()


def test_link_that_looks_like_a_folder_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    link = temporary / f"{PREFIX}link"
    link.symlink_to(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert link not in remove_orphans()
    assert tmp_path.exists()


def test_long_temporary_folder_does_not_break_the_socket(
    start_redis: StartRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert answers(start_redis().socket)


def test_free_port_is_free_and_leaves_room_for_a_cluster_bus() -> None:
    port = free_port()
    assert port + 10000 < 65536
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", port))


def test_demo_uses_the_server_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://given.example/3")
    with demo_url() as url:
        assert url == "redis://given.example/3"


def test_demo_starts_a_private_server_and_never_reads_redis_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_REDIS_URL", raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://production.example/0")
    with demo_url() as url:
        path = Path(url.removeprefix("unix://"))
        assert answers(path)
    assert not path.exists()
