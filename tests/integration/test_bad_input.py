"""Bad input: a clear error that names the argument and the cure, of a class the caller expects; and nothing stored."""

import io
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from redis import Redis

from django_delayq import RetryPolicy, delayed_task, enqueue_many, execute_later, get_job, get_store
from django_delayq.exceptions import (
    DelayQError,
    InvalidDelay,
    InvalidMoment,
    KeyHeld,
    PayloadNotSerializable,
    PayloadTooLarge,
    StoreAuthError,
    StoreRejected,
    StoreUnavailable,
    UnknownQueue,
    UnknownTask,
)
from django_delayq.job.job import State
from django_delayq.task import registry
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop

SECRET = "s3cret-canary"
NAME = "tests.sample_app.tasks.noop"


@pytest.fixture(autouse=True)
def nothing_stored(delayq_settings: Any, client: Redis) -> Iterator[None]:
    """Whatever a test tried: the server it could have reached holds nothing."""
    yield
    assert client.dbsize() == 0


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def refused(kind: type[Exception], builtin: type[Exception], words: str, act: Callable[[], Any]) -> Exception:
    """Check that an act raises an error of ours that is the builtin too and says what it should."""
    with pytest.raises(kind, match=words) as caught:
        act()
    assert isinstance(caught.value, builtin)
    assert SECRET not in str(caught.value) and len(str(caught.value)) < 800
    return caught.value


# --- delays and moments ---

#: Every way to say a delay.
DELAYS: dict[str, Callable[[Any], Any]] = {
    "after": lambda delay: noop.after(delay).enqueue(),
    "using": lambda delay: noop.using(delay=delay).enqueue(),
    "execute_later": lambda delay: execute_later("mail", NAME, [], delay=delay),
    "enqueue_many": lambda delay: noop.after(delay).enqueue_many([(1,)]),
    "reschedule": lambda delay: noop.job().reschedule(delay=delay),
}


@pytest.mark.parametrize("door", DELAYS)
@pytest.mark.parametrize(
    "delay",
    ["5", b"5", True, False, 1j, date(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC), [5], Decimal(5), SECRET],
    ids=lambda value: type(value).__name__,
)
def test_a_delay_of_another_type(door: str, delay: Any) -> None:
    words = f"delay must be a number of seconds or a timedelta, got {type(delay).__name__}"
    refused(InvalidDelay, TypeError, words, lambda: DELAYS[door](delay))


@pytest.mark.parametrize("door", ["after", "execute_later"])
def test_a_delay_of_none_where_one_is_required(door: str) -> None:
    refused(InvalidDelay, TypeError, "seconds.*timedelta", lambda: DELAYS[door](None))


@pytest.mark.parametrize("door", DELAYS)
@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf, -1, -1e-9, -0.5, timedelta(microseconds=-1)])
def test_a_delay_out_of_range(door: str, delay: Any) -> None:
    refused(InvalidDelay, ValueError, r"delay must (be a finite|not be negative)", lambda: DELAYS[door](delay))


@pytest.mark.parametrize("door", DELAYS)
@pytest.mark.parametrize("delay", [timedelta(days=3_651), 1e300, 10**400, timedelta.max, 1e308, 1.7e308])
def test_a_delay_beyond_its_limit(door: str, delay: Any) -> None:
    words = "delay .*MAX_DELAY|delay must be a number of seconds that fits a calendar"
    refused(InvalidDelay, ValueError, words, lambda: DELAYS[door](delay))


def test_the_limit_itself_is_named_and_legal(delayq_settings: Any, client: Redis) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MAX_DELAY": timedelta(days=2)}
    assert noop.after(days=2).enqueue().cancel()
    error = refused(InvalidDelay, ValueError, "MAX_DELAY", lambda: noop.after(days=2, microseconds=1).enqueue())
    assert "2 days" in str(error)
    client.flushall()


@pytest.mark.parametrize(
    ("units", "builtin"),
    [
        ({"days": "1"}, TypeError),
        ({"minutes": None}, TypeError),
        ({"days": math.nan}, ValueError),
        ({"days": math.inf}, ValueError),
        ({"days": 10**400}, ValueError),
        ({"weeks": 10**9}, ValueError),
        ({"hours": -1}, ValueError),
        ({"weeks": 1_000}, ValueError),
    ],
)
def test_units_that_make_no_delay(units: Any, builtin: type[Exception]) -> None:
    refused(InvalidDelay, builtin, "after|delay", lambda: noop.after(**units).enqueue())


@pytest.mark.parametrize("units", [{"fortnights": 1}, {"month": 1}])
def test_units_there_are_none_of(units: Any) -> None:
    with pytest.raises(TypeError, match=next(iter(units))):
        noop.after(**units)


def test_no_time_or_two_of_them() -> None:
    for act in (lambda: noop.after(), lambda: noop.after(5, minutes=1)):
        with pytest.raises(TypeError, match=r"after\(\) takes"):
            act()
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    for options in ({"delay": 5, "at": moment}, {"delay": 0, "run_after": moment}):
        with pytest.raises(TypeError, match="either a delay or a moment"):
            noop.using(**options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at and run_after"):
        noop.using(at=moment, run_after=moment)


MOMENTS: dict[str, Callable[[Any], Any]] = {
    "at": lambda moment: noop.at(moment).enqueue(),
    "using": lambda moment: noop.using(at=moment).enqueue(),
    "run_after": lambda moment: noop.using(run_after=moment).enqueue(),
    "reschedule": lambda moment: noop.job().reschedule(at=moment),
}


@pytest.mark.parametrize("door", MOMENTS)
def test_a_naive_moment(door: str) -> None:
    words = "aware datetime.*make_aware"
    refused(InvalidMoment, ValueError, words, lambda: MOMENTS[door](datetime(2030, 1, 1)))


@pytest.mark.parametrize("door", MOMENTS)
@pytest.mark.parametrize("moment", ["2030-01-01", 5, date(2030, 1, 1), timedelta(1), True], ids=str)
def test_what_is_no_moment(door: str, moment: Any) -> None:
    words = f"must be an aware datetime, got {type(moment).__name__}"
    refused(InvalidMoment, ValueError, words, lambda: MOMENTS[door](moment))


@pytest.mark.parametrize("door", MOMENTS)
@pytest.mark.parametrize("moment", [datetime.max.replace(tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)], ids=str)
def test_a_moment_beyond_the_limit(door: str, moment: datetime) -> None:
    refused(InvalidDelay, ValueError, r"at is more than MAX_DELAY \(3,650 days\)", lambda: MOMENTS[door](moment))


def test_no_moment_at_all() -> None:
    with pytest.raises(TypeError, match=r"at\(\) takes an aware datetime"):
        noop.at(None)


# --- payloads ---

#: Every way to send arguments.
PAYLOADS: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda value: noop.enqueue(user={"x": [0, value]}),
    "enqueue_many": lambda value: noop.enqueue_many([(1,), ({"x": [0, value]},)]),
    "job": lambda value: enqueue_many([noop.job(1), noop.job(user={"x": [0, value]})]),
    "execute_later": lambda value: execute_later("mail", NAME, [{"x": [0, value]}]),
}
circular: list[Any] = []
circular.append(circular)


@pytest.mark.parametrize("door", PAYLOADS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1, 2}, "is a set.*list"),
        (object(), "is a object.*convert"),
        (User(pk=7, username=SECRET), "is a User.*primary key"),
        (SECRET.encode(), "is a bytes.*base64"),
        (math.nan, "is nan.*None or a string"),
        (math.inf, "is inf.*None or a string"),
        (-math.inf, "is -inf.*None or a string"),
        ({1: 2}, "key of type int.*str"),
        ((1, 2), "is a tuple.*list"),
        (Decimal("1.5"), r"is a Decimal.*str\(value\)"),
        (UUID(int=7), r"is a UUID.*str\(value\)"),
        (datetime(2030, 1, 1, tzinfo=UTC), "is a datetime.*isoformat"),
        (date(2030, 1, 1), "is a date.*isoformat"),
        (timedelta(1), "is a timedelta.*total_seconds"),
        (circular, "itself"),
    ],
    ids=lambda value: value if type(value) is str else type(value).__name__,
)
def test_what_json_cannot_carry(door: str, value: Any, words: str) -> None:
    path = r"kwargs\['user'\]\['x'\]\[1\]" if door in ("enqueue", "job") else r"args\[0\]\['x'\]\[1\]"
    refused(PayloadNotSerializable, TypeError, rf"{path}.*{words}", lambda: PAYLOADS[door](value))


@pytest.mark.parametrize("door", PAYLOADS)
def test_a_payload_over_its_limit(door: str) -> None:
    text = SECRET * 30_000
    words = "bytes, more than MAX_PAYLOAD.*reference"
    refused(PayloadTooLarge, ValueError, words, lambda: PAYLOADS[door](text))


@pytest.mark.parametrize("door", PAYLOADS)
@pytest.mark.parametrize("levels", [63, 10_000])
def test_a_payload_nested_too_deep(door: str, levels: int) -> None:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    refused(PayloadTooLarge, ValueError, "nested deeper than 64 levels.*reference", lambda: PAYLOADS[door](value))


@pytest.mark.parametrize("value", ["\ud800", "a\0b", 2**63, -(2**53) - 1, 1e22, -0.0, [], {}, None])
def test_odd_values_that_json_can_carry_are_kept_exactly(value: Any, client: Redis) -> None:
    handle = noop.after(60).enqueue(value)
    found = get_job(handle.id)
    assert found and found.job and repr(found.job.args) == repr([value])
    client.flushall()


# --- arguments, names, options ---


def narrow(user_id: int, *, name: str = "") -> None:
    raise AssertionError("called")


async def narrow_async(user_id: int) -> None:
    raise AssertionError("called")


@pytest.mark.parametrize("args", [(), (1, 2), (1, 2, 3)])
def test_arguments_that_do_not_fit_the_signature(args: tuple[int, ...], own_registry: None) -> None:
    for func in (narrow, narrow_async):
        task: Any = delayed_task(func)
        enqueues: list[Callable[[], Any]] = [
            lambda task=task: task.enqueue(*args),
            lambda task=task: task.job(*args),
            lambda task=task: task.enqueue_many([(1,), args]),
            lambda task=task: execute_later("mail", task.name, args),
        ]
        for act in enqueues:
            with pytest.raises(TypeError, match="argument"):
                act()
    with pytest.raises(TypeError, match="nmae"):
        delayed_task(narrow).enqueue(1, nmae="x")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["tests.sample_app.tasks.nop", "os.system", "", "x" * 2_000, None, 5, b"x"])
def test_a_task_that_is_not_registered(name: Any) -> None:
    refused(UnknownTask, LookupError, "No task is registered", lambda: execute_later("mail", name, []))


@pytest.mark.parametrize("args", ["abc", b"abc", {"a": 1}])
def test_arguments_by_name_that_are_no_list(args: Any) -> None:
    with pytest.raises(TypeError, match="args must be a list of positional arguments"):
        execute_later("mail", NAME, args)


@pytest.mark.parametrize("args", [5, None])
def test_arguments_by_name_that_are_nothing_to_iterate(args: Any) -> None:
    with pytest.raises(TypeError):
        execute_later("mail", NAME, args)


def test_two_functions_with_one_name(own_registry: None) -> None:
    delayed_task(name="shop.remind")(narrow)
    with pytest.raises(ImproperlyConfigured, match=r"narrow.*narrow_async.*Rename"):
        delayed_task(name="shop.remind")(narrow_async)


class Shop:
    def remind(self) -> None: ...


@pytest.mark.parametrize("func", [lambda: None, Shop.remind, Shop, len, 5])
def test_what_cannot_be_a_task(func: Any, own_registry: None) -> None:
    for decorate in (delayed_task, delayed_task(queue="mail")):
        with pytest.raises(ImproperlyConfigured, match="@delayed_task"):
            decorate(func)


QUEUES: dict[str, Callable[[Any], Any]] = {
    "using": lambda queue: noop.using(queue=queue).enqueue(),
    "queue_name": lambda queue: noop.using(queue_name=queue).enqueue(),
    "execute_later": lambda queue: execute_later(queue, NAME, []),
    "decorator": lambda queue: delayed_task(queue=queue)(narrow),
}


@pytest.mark.parametrize("door", QUEUES)
@pytest.mark.parametrize("queue", ["", "x" * 201, "é" * 101, 5, b"mail", True, ["mail"]], ids=lambda q: repr(q)[:9])
def test_what_is_no_queue(door: str, queue: Any, own_registry: None) -> None:
    with pytest.raises(ValueError, match="queue must be .*, got"):
        QUEUES[door](queue)


@pytest.mark.parametrize("door", ["execute_later", "decorator"])
def test_no_queue_where_one_is_required(door: str, own_registry: None) -> None:
    with pytest.raises(ValueError, match="queue must be .*, got"):
        QUEUES[door](None)


@pytest.mark.parametrize("door", ["using", "queue_name", "execute_later"])
def test_a_queue_that_is_not_declared(door: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"default": {}, "mail": {}}}
    words = "queue 'mial' is not declared.*did you mean 'mail'"
    refused(UnknownQueue, ValueError, words, lambda: QUEUES[door]("mial"))


def test_a_task_whose_queue_is_not_declared(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}}}
    refused(UnknownQueue, ValueError, "'default' is not declared", noop.enqueue)


def test_two_queues() -> None:
    with pytest.raises(TypeError, match="queue and queue_name"):
        noop.using(queue="a", queue_name="b")


@pytest.mark.parametrize("key", ["", "x" * 201, 5, b"k", True, ("k", 1)], ids=lambda key: repr(key)[:9])
def test_what_is_no_key(key: Any) -> None:
    for act in (lambda: noop.using(key=key).enqueue(), lambda: noop.get_job(key=key)):
        with pytest.raises(ValueError, match="key must be .*, got"):
            act()


@pytest.mark.parametrize("unique", ["replace", "KEEP", "", 5, True])
def test_a_mode_there_is_none_of(unique: Any) -> None:
    with pytest.raises(ValueError, match="unique must be 'keep' or 'reject'"):
        noop.using(key="k", unique=unique).enqueue()


def test_the_key_of_a_live_job(client: Redis) -> None:
    holder = noop.using(key="k").after(60).enqueue()
    before = sorted((key, client.type(key)) for key in client.scan_iter())
    error = refused(KeyHeld, ValueError, rf"'k'.*{holder.id}", noop.using(key="k", unique="reject").enqueue)
    assert isinstance(error, KeyHeld) and error.holder == holder.id
    assert sorted((key, client.type(key)) for key in client.scan_iter()) == before
    assert get_store().lookup(0).counts().scheduled == {"default": 1}
    client.flushall()


@pytest.mark.parametrize("number", [0, -1, True, 1_001, "3", 2.0, None])
def test_max_attempts(number: Any) -> None:
    with pytest.raises(ValueError, match=r"max_attempts must be .*, got"):
        RetryPolicy(max_attempts=number)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry": 3}, "retry must be a RetryPolicy, got int"),
        ({"retry": {"max_attempts": 3}}, "retry must be a RetryPolicy, got dict"),
        ({"priority": 101}, "priority must be -100 to 100.*got 101"),
        ({"priority": -101}, "priority must be -100 to 100"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": 1.0}, "priority must be a whole number"),
        ({"priority": "1"}, "priority must be a whole number"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": -1}, "timeout must not be negative"),
        ({"timeout": math.nan}, "timeout must be a finite"),
        ({"hard_timeout": 0}, "hard_timeout must be more than 0"),
        ({"timeout": 60, "hard_timeout": 30}, "hard_timeout must not be shorter"),
    ],
    ids=repr,
)
def test_options_that_could_not_work(options: Any, words: str, own_registry: None) -> None:
    for act in (lambda: noop.using(**options), lambda: delayed_task(**options)(narrow)):
        with pytest.raises(ValueError, match=words):
            act()


@pytest.mark.parametrize("option", ["timeout", "hard_timeout"])
@pytest.mark.parametrize("value", ["30", True, 1j])
def test_a_time_limit_of_another_type(option: str, value: Any, own_registry: None) -> None:
    for act in (lambda: noop.using(**{option: value}), lambda: delayed_task(**{option: value})(narrow)):
        refused(InvalidDelay, TypeError, f"{option} must be a number of seconds or a timedelta", act)


@pytest.mark.parametrize("option", ["max_attempts", "delay", "qeue", "tenant", "limit"])
def test_options_the_decorator_does_not_know(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        delayed_task(**{option: 1})(narrow)  # type: ignore[call-overload]


def test_a_string_of_aliases() -> None:
    with pytest.raises(ValueError, match="aliases must be a list"):
        delayed_task(aliases="old.name")(narrow)


# --- settings ---


@pytest.mark.parametrize(
    ("delayq", "number", "words"),
    [
        (None, "E001", "DELAYQ setting is missing"),
        ([], "E002", "must be a dict, got list"),
        ({}, "E003", "'REDIS'.* is missing"),
        ({"REDIS": "redis://h", "LAESE": 5}, "E004", "'LAESE'.*did you mean 'LEASE'"),
        ({"REDIS": f"redes://:{SECRET}@h"}, "E005", "did you mean 'redis'"),
        ({"REDIS": 5}, "E005", "must be a URL, alias, dict or callable, got int"),
        ({"REDIS": f"redis://:{SECRET}@h:port"}, "E005", "well-formed URL"),
        ({"REDIS": {"url": f"redis://:{SECRET}@h", "host": "h"}}, "E005", "both 'url' and 'host'"),
        ({"REDIS": {"hots": "h", "password": SECRET}}, "E005", "'hots'.*did you mean 'host'"),
        ({"REDIS": {"ssl_ca_certs": "/nonexistent/ca.pem"}}, "E005", "file that this user can read"),
        ({"REDIS": "nowhere"}, "E005", "CACHES does not have"),
        ({"REDIS": "redis://h", "LEASE": 0.5}, "E006", "LEASE.* at least 1 s"),
        ({"REDIS": "redis://h", "LEASE": "30"}, "E006", "LEASE.* number of seconds or a timedelta"),
        ({"REDIS": "redis://h", "SHARDS": 0}, "E006", "SHARDS.* 1 to 1,000, got 0"),
    ],
)
def test_settings_that_cannot_work(delayq: Any, number: str, words: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = delayq
    [found] = [message for message in checks.run_checks() if str(message.id).startswith("delayq.E")]
    assert found.id == f"delayq.{number}" and found.hint and found.level == checks.ERROR
    assert SECRET not in str(found)
    with pytest.raises(ImproperlyConfigured, match=words) as caught:
        noop.enqueue()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used(content: str | None, tmp_path: Path, delayq_settings: Any) -> None:
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
        delayq_settings.DELAYQ = {"REDIS": {"host": "127.0.0.1", "ssl": True, "ssl_ca_certs": str(path)}}
        with pytest.raises((ImproperlyConfigured, StoreUnavailable)):
            noop.enqueue()
        return
    delayq_settings.DELAYQ = {"REDIS": f"rediss://127.0.0.1/0?ssl_ca_certs={path}"}
    with pytest.raises((ImproperlyConfigured, StoreUnavailable)):
        noop.enqueue()


# --- Redis ---


def test_redis_down(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis(port=0, options={"requirepass": SECRET})
    urls = [f"redis://:{SECRET}@127.0.0.1:{server.port}/0", f"unix://:{SECRET}@{server.socket}"]
    server.kill()
    for url in urls:
        delayq_settings.DELAYQ = {"REDIS": url}
        handle = noop.job(SECRET)
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many([handle])
        error = caught.value
        assert (error.maybe_accepted, error.retryable, error.accepted, list(error.unsent)) == (False, True, 0, [handle])
        assert SECRET not in str(error) + "".join(error.__notes__)
        assert handle.id in error.__notes__[0] and handle.state is State.UNSENT


@pytest.fixture
def mute_server() -> Iterator[int]:
    """The port of a listener that takes connections and requests, and never answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)
    for connection in held:
        connection.close()


def within_patience(act: Callable[[], Any]) -> BaseException | None:
    """Run an act in a thread that must end; return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the caller waits for ever"
    return raised[0] if raised else None


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_redis_slow(scheme: str, mute_server: int, delayq_settings: Any) -> None:
    url = (
        f"{scheme}://:{SECRET}@127.0.0.1:{mute_server}/0?ssl_cert_reqs=none"
        if scheme == "rediss"
        else (f"redis://127.0.0.1:{mute_server}/0")
    )
    delayq_settings.DELAYQ = {"REDIS": url, "ENQUEUE_TIMEOUT": 0.5}
    handle = noop.job()
    looks: list[Callable[[], Any]] = [lambda: enqueue_many([handle]), lambda: get_job(f"{'0' * 24}-0")]
    for act in looks:
        error = within_patience(act)
        assert isinstance(error, StoreUnavailable), error
        assert error.retryable and SECRET not in str(error)
    first = within_patience(looks[0])
    # Whether a request that got no answer was carried out, nobody knows; the same id makes a second try harmless.
    assert isinstance(first, StoreUnavailable) and first.maybe_accepted and list(first.unsent) == [handle]


def test_memory_full(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis(options={"maxmemory": "1", "maxmemory-policy": "noeviction"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    rejected(server, "OOM")


def rejected(server: LocalRedisServer, code: str) -> None:
    """Check what enqueueing says of a server that takes no writes, single and in bulk, script known or not."""
    for _ in range(2):
        for act in (lambda: noop.enqueue(SECRET), lambda: noop.after(60).enqueue_many([(1,)] * 3)):
            with pytest.raises(StoreRejected, match="nothing was stored") as caught:
                act()
            error = caught.value
            assert (error.code, error.maybe_accepted, error.retryable) == (code, False, True)
            assert len(error.unsent) >= 1 and SECRET not in str(error)
    with server.client() as other:
        assert other.dbsize() == 0


def test_a_replica(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    main, replica = start_redis(port=0), start_redis(port=0)
    with replica.client() as other:
        other.replicaof("127.0.0.1", main.port)
        delayq_settings.DELAYQ = {"REDIS": replica.url}
        rejected(replica, "READONLY")


def test_a_server_that_cannot_save(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis(options={"save": "3600 1", "stop-writes-on-bgsave-error": "yes"})
    with server.client() as other:
        # A folder where the file should be written makes every save fail.
        os.mkdir(server.folder / "dump.rdb")
        other.set("a", 1)
        other.bgsave()
        wait_until(lambda: other.info("persistence")["rdb_last_bgsave_status"] == "err")
        other.config_set("save", "3600 1")
    delayq_settings.DELAYQ = {"REDIS": server.url}
    with pytest.raises(StoreRejected) as caught:
        noop.enqueue()
    assert (caught.value.code, caught.value.maybe_accepted) == ("MISCONF", False)


def test_too_few_replicas(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis(options={"min-replicas-to-write": "1"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    rejected(server, "NOREPLICAS")


def wait_until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_server_that_loads(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    with server.client() as other:
        # A script that runs for long: the server answers BUSY, as it answers LOADING while it loads.
        other.config_set("lua-time-limit" if other.info("server")["redis_version"] < "7" else "busy-reply-threshold", 1)
        thread = threading.Thread(target=lambda: within_patience(lambda: other.eval("while true do end", 0)))
        thread.start()
        found: list[StoreUnavailable] = []

        def busy() -> bool:
            try:
                noop.enqueue()
            except StoreUnavailable as error:
                found.append(error)
            return bool(found)

        wait_until(busy)
        with server.client() as third:
            third.script_kill()
        thread.join(30)
    [error] = found
    assert error.retryable and "BUSY" in str(error).upper() and not error.maybe_accepted


# --- users and passwords ---


@pytest.fixture
def guarded(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    """A server with a password, and a user `shop` who may do too little."""
    server = start_redis(port=0, options={"requirepass": SECRET})
    with server.client(password=SECRET) as other:
        # A user may see keys that are not ours only, or not run scripts.
        other.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~other:*", "+@all")
        other.execute_command("ACL", "SETUSER", "noscript", "on", f">{SECRET}", "~*", "+@all", "-@scripting")
        other.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@read", "+@connection")
    return server


def auth_refused(server: LocalRedisServer, credentials: str, delayq_settings: Any) -> StoreAuthError:
    delayq_settings.DELAYQ = {"REDIS": f"redis://{credentials}127.0.0.1:{server.port}/0"}
    with pytest.raises(StoreAuthError) as caught:
        noop.enqueue("payload-canary")
    error = caught.value
    shown = str(error) + "".join(getattr(error, "__notes__", ()))
    assert SECRET not in shown and "payload-canary" not in shown
    assert not error.maybe_accepted and not error.retryable and len(error.unsent) == 1
    with server.client(password=SECRET) as other:
        assert other.dbsize() == 0
    return error


@pytest.mark.parametrize("user", ["shop", "nobody", "default"])
def test_a_wrong_password_names_the_user(user: str, guarded: LocalRedisServer, delayq_settings: Any) -> None:
    assert user in str(auth_refused(guarded, f"{user}:wrong-{SECRET}@", delayq_settings))


def test_a_wrong_password_without_a_user(guarded: LocalRedisServer, delayq_settings: Any) -> None:
    assert "default" in str(auth_refused(guarded, f":wrong-{SECRET}@", delayq_settings))


def test_no_password_where_one_is_needed(guarded: LocalRedisServer, delayq_settings: Any) -> None:
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


# --- second thoughts: results, not errors ---


def test_what_comes_too_late_is_a_result(client: Redis) -> None:
    handle = noop.after(60).enqueue()
    assert handle.cancel() is True and handle.reschedule(delay=5) is False
    operations = get_store().operations(0)
    raw = bytes(12)
    assert operations.cancel(raw) is False
    assert operations.requeue(raw, died_us=1) is None
    assert operations.discard(raw, died_us=1) is False and operations.move(raw, "other") is False
    client.flushall()


# --- management commands ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--concurrency", "0"], "--concurrency must be a whole number, 1 to 10,000, got 0"),
        (["--concurrency", "-1"], "--concurrency must be a whole number, 1 to 10,000, got -1"),
        (["--concurrency", "10001"], "--concurrency must be"),
        (["--concurrency", "many"], "concurrency.*invalid int"),
        (["--queues", ""], "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "mail,,bulk"], "--queues: queue must be"),
        (["--queues", "x" * 201], "--queues: queue must be"),
        (["--queue", "mial"], "--queues|ambiguous|mial"),
        (["--queues", "mail,blk"], "--queues: queue 'blk' is not declared.*did you mean 'bulk'"),
        (["--nonsense"], "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_worker_options(options: list[str], words: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}, "bulk": {}}}
    with pytest.raises(CommandError, match=words):
        call_command("run_worker", *options, "--drain", stdout=io.StringIO())


@pytest.mark.parametrize("command", ["run_worker", "run_dispatcher"])
@pytest.mark.parametrize(
    ("delayq", "words"),
    [
        ({}, "REDIS.*missing"),
        ({"REDIS": "redis://h", "LAESE": 5}, "did you mean 'LEASE'"),
        ({"REDIS": f"redes://:{SECRET}@h"}, "did you mean 'redis'"),
    ],
)
def test_commands_with_settings_that_cannot_work(command: str, delayq: Any, words: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = delayq
    with pytest.raises(CommandError, match=words) as caught:
        call_command(command, stdout=io.StringIO())
    assert SECRET not in str(caught.value)


def test_a_check_that_redis_refuses(guarded: LocalRedisServer, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {"REDIS": f"redis://shop:wrong-{SECRET}@127.0.0.1:{guarded.port}/0"}
    with pytest.raises(CommandError, match="refused") as caught:
        call_command("delayq_check", stdout=io.StringIO())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_evict_jobs_is_refused(
    policy: str, delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"maxmemory-policy": policy})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    for command in ("run_worker", "run_dispatcher"):
        with pytest.raises(CommandError, match=f"{policy}.*noeviction"):
            call_command(command, stdout=io.StringIO())


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["run_worker", "--concurrency", "0"], 1, "CommandError: --concurrency must be"),
        (["run_worker", "--concurrency", "x"], 2, "invalid int value"),
        (["run_worker", "--queues", ","], 1, "CommandError: --queues"),
        (["run_worker", "--nonsense"], 2, "unrecognized arguments"),
        (["run_dispatcher", "--nonsense"], 2, "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_ends_with_its_code_and_no_traceback(command: list[str], code: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "django", *command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert words in done.stderr and "Traceback" not in done.stderr


def test_every_error_of_ours_has_one_root() -> None:
    for kind in (
        InvalidDelay,
        InvalidMoment,
        PayloadNotSerializable,
        PayloadTooLarge,
        UnknownTask,
        UnknownQueue,
        KeyHeld,
    ):
        assert issubclass(kind, DelayQError)
        assert str(kind()) == kind.__doc__
