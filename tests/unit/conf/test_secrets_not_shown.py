"""Secrets: the error for a wrong REDIS setting shows no password, and neither do its cause and context."""

import traceback
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq import get_store
from django_delayq.conf.redis_settings import RedisConfig, SettingError
from django_delayq.conf.settings import get_config

CANARY = "s3cret-canary"
FORMS: list[Any] = [
    f"{CANARY}://x",
    f"redis://:{CANARY}/x@host",
    f"redis://:1234/{CANARY}@host:6379/0",
    f"redis:/:{CANARY}@host:6379/0",
    f"redis://user:{CANARY}@host/zero",
    f"redis://user:{CANARY}@[::1",
    f"://user:{CANARY}@host",
    {"url": f"{CANARY}://x"},
    {"url": f"redis://:{CANARY}/x@host"},
]


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an error with every cause and context that a report may show."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found.append(one)
            waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]
    return found


def check(error: BaseException) -> None:
    assert CANARY not in "".join(traceback.format_exception(error))
    for one in chain(error):
        assert CANARY not in f"{one} {one!r} {one.args!r} {getattr(one, 'hint', '')}"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{type(form).__name__}-{str(form).replace(CANARY, '*')}")
def test_the_error_for_a_wrong_setting_hides_its_password(form: Any, settings: Any) -> None:
    with pytest.raises(SettingError) as caught:
        RedisConfig.read(form)
    check(caught.value)
    settings.DELAYQ = {"REDIS": form}
    with pytest.raises(ImproperlyConfigured) as refused:
        get_config()
    check(refused.value)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{type(form).__name__}-{str(form).replace(CANARY, '*')}")
def test_the_error_for_what_a_callable_returns_hides_its_password(form: Any, settings: Any) -> None:
    # The returned value is read by the code that connects, not by the code that reads settings.
    settings.DELAYQ = {"REDIS": lambda: form}
    with pytest.raises(ImproperlyConfigured) as refused:
        get_store().shards[0].client.ping()
    check(refused.value)
