"""manage.py delayq_acl: Redis accepts each line once it contains the hash of a password."""

import io
from hashlib import sha256
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from redis import Redis
from redis.exceptions import AuthenticationError, ResponseError

from django_delayq.store.maintenance.acl_roles import ROLES
from django_delayq.testing.local_redis import LocalRedisServer


def printed(*arguments: Any, **options: Any) -> tuple[list[str], str]:
    """Return the lines on standard output, and the text on standard error."""
    out, errors = io.StringIO(), io.StringIO()
    call_command("delayq_acl", *arguments, stdout=out, stderr=errors, **options)
    return out.getvalue().splitlines(), errors.getvalue()


@pytest.fixture
def plain(start_redis: Any) -> Any:
    with start_redis().client(protocol=2) as client:
        yield client


def test_there_is_a_line_for_each_role(settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "PREFIX": "shop"}
    lines, errors = printed()
    assert lines == [
        f"ACL SETUSER delayq-{name} reset on #<sha256> {role.rule('shop')}" for name, role in ROLES.items()
    ]
    assert "SHA-256" in errors
    assert printed(verbosity=0) == (lines, "")
    assert printed("worker", user="shop.worker@eu")[0] == [
        f"ACL SETUSER shop.worker@eu reset on #<sha256> {ROLES['worker'].rule('shop')}"
    ]


def test_a_line_creates_a_user_who_logs_in_with_the_password(plain: Redis, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0"}
    plain.execute_command("ACL", "SETUSER", "delayq-view", "on", "nopass", "~*", "+@all")
    (line,), _ = printed("view")
    command = line.replace("<sha256>", sha256(b"pw").hexdigest()).split(" ")
    assert plain.execute_command(*command) == b"OK"
    server = plain.connection_pool.connection_kwargs["path"]
    with Redis(unix_socket_path=server, username="delayq-view", password="pw", protocol=2) as user:
        assert user.hget("delayq:{0}:jobs", "x") is None
    user = Redis(unix_socket_path=server, username="delayq-view", password="other", protocol=2)
    with user, pytest.raises(AuthenticationError):
        user.hget("delayq:{0}:jobs", "x")


def test_a_line_without_a_password_hash_is_refused(plain: Redis, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0"}
    for line in printed()[0]:
        with pytest.raises(ResponseError, match="password hash must be exactly 64"):
            plain.execute_command(*line.split(" "))
    assert plain.execute_command("ACL", "USERS") == [b"default"]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["admin"], {}, "There is no role 'admin'; choose one of producer, dispatcher"),
        ([], {"user": "x"}, "--user needs a ROLE"),
        (["view"], {"user": ""}, "--user must be 1 to 100"),
        (["view"], {"user": "default"}, "not 'default'"),
        (["view"], {"user": "a b"}, "--user must be 1 to 100"),
        (["view"], {"user": "x\nACL SETUSER y on nopass"}, "--user must be 1 to 100"),
        (["view"], {"user": "x" * 101}, "--user must be 1 to 100"),
    ],
)
def test_illegal_arguments_are_refused_with_a_cure(
    arguments: list[str], options: Any, message: str, settings: Any
) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0"}
    with pytest.raises(CommandError, match=message):
        printed(*arguments, **options)


def test_wrong_settings_are_an_error(settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "PREFIX": 'a"b'}
    with pytest.raises(CommandError, match="PREFIX"):
        printed()
    settings.DELAYQ = {"REDIS": "nowhere"}
    with pytest.raises(CommandError, match="DELAYQ"):
        printed()


def test_it_connects_to_nothing(settings: Any, start_redis: Any) -> None:
    server: LocalRedisServer = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    with server.client(protocol=2) as plain:
        before = plain.info("stats")["total_connections_received"]
        assert len(printed()[0]) == len(ROLES)
        assert plain.info("stats")["total_connections_received"] == before
