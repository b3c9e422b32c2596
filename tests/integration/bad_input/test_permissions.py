"""Permissions: Redis refuses a wrong password, and commands and keys that the user may not use."""

from typing import Any

import pytest

from django_delayq.exceptions import (
    StoreAuthError,
)
from django_delayq.job.job import State
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.bad_input.refusals import SECRET
from tests.sample_app.tasks import noop


def auth_refused(server: LocalRedisServer, credentials: str, delayq_settings: Any) -> StoreAuthError:
    delayq_settings.DELAYQ = {"REDIS": f"redis://{credentials}127.0.0.1:{server.port}/0"}
    with pytest.raises(StoreAuthError) as caught:
        noop.enqueue("payload-canary")
    error = caught.value
    shown = str(error) + "".join(getattr(error, "__notes__", ()))
    assert SECRET not in shown and "payload-canary" not in shown
    assert not error.maybe_accepted and not error.retryable and len(error.unsent) == 1
    assert "Correct the cause, then error.resend() sends the same ids." in shown and "works again" not in shown
    with server.client(password=SECRET) as other:
        assert other.dbsize() == 0
    return error


@pytest.mark.parametrize("user", ["shop", "nobody", "default"])
def test_a_wrong_password_names_the_user(user: str, guarded: LocalRedisServer, delayq_settings: Any) -> None:
    assert user in str(auth_refused(guarded, f"{user}:wrong-{SECRET}@", delayq_settings))


def test_a_wrong_password_without_a_user_names_the_default_user(
    guarded: LocalRedisServer, delayq_settings: Any
) -> None:
    assert "default" in str(auth_refused(guarded, f":wrong-{SECRET}@", delayq_settings))


def test_a_missing_password_is_refused(guarded: LocalRedisServer, delayq_settings: Any) -> None:
    auth_refused(guarded, "", delayq_settings)


@pytest.mark.parametrize("user", ["noscript", "reader"])
def test_a_forbidden_command_names_user_and_command(user: str, guarded: LocalRedisServer, delayq_settings: Any) -> None:
    error = auth_refused(guarded, f"{user}:{SECRET}@", delayq_settings)
    assert user in str(error) and "eval" in str(error).lower()


def test_forbidden_keys_name_the_user(guarded: LocalRedisServer, delayq_settings: Any) -> None:
    assert "shop" in str(auth_refused(guarded, f"shop:{SECRET}@", delayq_settings))


def test_the_documented_permissions_are_enough(guarded: LocalRedisServer, delayq_settings: Any) -> None:
    with guarded.client(password=SECRET) as other:
        other.execute_command("ACL", "SETUSER", "delayq", "on", f">{SECRET}", "~delayq:*", "+@all", "-@dangerous")
    delayq_settings.DELAYQ = {"REDIS": f"redis://delayq:{SECRET}@127.0.0.1:{guarded.port}/0"}
    handle = noop.after(60).enqueue()
    assert handle.refresh().state is State.SCHEDULED and handle.cancel()
