"""The password of Redis: it must not appear in anything that the processes print, log, raise or show in `ps`.

tests/unit/conf/test_secrets_not_shown.py tests the errors raised while the setting is read.
"""

import functools
import io
import json
import logging
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command
from redis import Redis

from django_delayq import get_store
from django_delayq.conf.settings import get_config, read_config
from django_delayq.exceptions import StoreAuthError, StoreError, StoreUnavailable
from django_delayq.store.promotion import Promotion
from django_delayq.testing.local_redis import LocalRedisServer
from tests.inspection import inspection
from tests.one_by_one import one_by_one
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, until

CANARY = "s3cret-canary-4711"
#: The parts of it that could remain after URL encoding or truncation.
TRACES = ("s3cret", "canary-4711")


@pytest.fixture
def server(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    """A server whose user `app` has the canary for a password."""
    made = start_redis(port=0)
    with made.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "on", f">{CANARY}", "~*", "&*", "+@all")
    return made


def url(server: LocalRedisServer, *, password: str = CANARY, scheme: str = "redis", end: str = "/0") -> str:
    return f"{scheme}://app:{password}@127.0.0.1:{server.port}{end}"


def assert_clean(text: str) -> None:
    """Fail if the canary is in the text, and show the text around it."""
    for trace in TRACES:
        at = text.find(trace)
        assert at < 0, f"…{text[max(0, at - 300) : at + 300]}…"


def everything_of(error: BaseException) -> str:
    """Return an error as a careless report shows it: with its causes and contexts, and their attributes."""
    seen, text = [error], "".join(traceback.format_exception(error))
    for one in seen:
        seen += [other for other in (one.__cause__, one.__context__) if other is not None and other not in seen]
        text += f"{one} {one!r} {one.args!r} {vars(one)!r}"
    return text


def command_lines() -> Iterator[tuple[int, str]]:
    """Yield id and command line of every process, as `ps` does."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            # It has ended.
            continue


def group(command: Command) -> list[str]:
    """Return the command lines of a command and of the processes that it started."""
    found = []
    for pid, line in command_lines():
        try:
            if os.getpgid(pid) == command.pid:
                found.append(line)
        except ProcessLookupError:
            continue
    return found


# A forked process has no command line of its own.
@pytest.mark.usefixtures("new_interpreters")
def test_processes_never_show_it_whatever_goes_wrong_with_redis(processes: Processes, server: LocalRedisServer) -> None:
    processes.configure(REDIS=url(server), LEASE=2)
    dispatcher = processes.start("run_dispatcher", "-v", 3)
    worker = processes.start("run_worker", "--with-dispatcher", "-v", 3)
    both = (dispatcher, worker)
    jobs = [tasks.record.enqueue("x"), tasks.fail.after(0.1).enqueue(1), tasks.record.using(key="k").enqueue()]
    processes.until_gone(jobs)
    until(lambda: len(group(worker)) == 2, what="the worker's child", details=lambda: repr(group(worker)))
    assert_clean(" ".join(group(worker) + group(dispatcher)))

    def trouble(word: str, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Let something go wrong until both log it, repair it, and wait until both work again."""
        recovered = {command: command.output.count("works again") for command in both}
        logged = {command: command.output.count(word) for command in both}
        begin()
        try:
            for command in both:
                processes.until(lambda c=command: c.output.count(word) > logged[c], what=f"both to log {word!r}")
        finally:
            end()
        for command in both:
            processes.until(lambda c=command: c.output.count("works again") > recovered[c], what="both to work again")

    def change(password: str) -> None:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "app", "on", "resetpass", f">{password}", "~*", "&*", "+@all")
            client.execute_command("CLIENT", "KILL", "USER", "app")

    def back() -> None:
        server.start()
        change(CANARY)

    def locked_out() -> None:
        change("another")
        with server.client() as client:
            processes.until(lambda: sum(entry["count"] for entry in client.acl_log()) >= 4, what="refusals")

    # A process logs a trouble once: either that a connection ended or that one was refused.
    trouble(": Redis ", locked_out, lambda: change(CANARY))
    trouble("did not answer", server.kill, back)
    # A suspended server keeps its connections and sends no replies.
    trouble(
        "did not answer",
        lambda: os.kill(server.pid or 0, signal.SIGSTOP),
        lambda: os.kill(server.pid or 0, signal.SIGCONT),
    )
    assert [command.end() for command in both] == [0, 0]
    for command in both:
        assert_clean(command.output)


ENQUEUE = "from tests.sample_app import tasks; tasks.record.enqueue(1)"
FAULTS: dict[str, Callable[[LocalRedisServer], Any]] = {
    "refused": lambda server: f"redis://app:{CANARY}@127.0.0.1:1/0",
    "wrong password": lambda server: url(server, password=f"{CANARY}-not"),
    "no such host": lambda server: f"redis://app:{CANARY}@no-such-host.invalid:6379/0",
    "bad option": lambda server: url(server, end="/0?socket_timeout=soon"),
    "no TLS there": lambda server: url(server, scheme="rediss"),
    "no such database": lambda server: url(server, end="/99"),
    "parameters": lambda server: {"host": "127.0.0.1", "port": 1, "username": "app", "password": CANARY},
    "no such parameter": lambda server: {"host": "127.0.0.1", "pasword": CANARY},
    "bad scheme": lambda server: url(server, scheme="reddis"),
    "cache": lambda server: f"app:{CANARY}@127.0.0.1",
}


#: Runs each command in a fork of one process that has loaded Django and all commands, and writes its output and its
#: exit code to files. A new process per command would load Django seventy times.
EACH = """
import gc, json, os, sys, django
from django.core.management import execute_from_command_line, get_commands, load_command_class

django.setup()
commands, names = json.loads(sys.argv[1]), {}
for command, *_ in commands.values():
    load_command_class(get_commands()[command], command)
# A collection would visit, and so copy, the memory of all modules in each fork.
gc.freeze()
for name, arguments in commands.items():
    pid = os.fork()
    if not pid:
        output = os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        execute_from_command_line(["manage.py", *arguments])
        sys.exit()
    names[pid] = name
while names:
    pid, status = os.wait()
    with open(f"{names[pid]}.part", "w") as code:
        code.write(str(os.waitstatus_to_exitcode(status)))
    os.rename(code.name, f"{names.pop(pid)}.code")
"""
COMMANDS = {
    "shell": ["shell", "-c", ENQUEUE],
    "worker": ["run_worker", "--drain", "-v", "3"],
    "dispatcher": ["run_dispatcher", "-v", "3"],
    "check_json": ["delayq_check", "--json"],
    "check_traceback": ["delayq_check", "--traceback"],
    "acl": ["delayq_acl"],
    "check": ["check"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_command_shows_it_whatever_is_wrong(
    fault: str, processes: Processes, server: LocalRedisServer, tmp_path: Path
) -> None:
    processes.configure(REDIS=FAULTS[fault](server))
    logs = {name: tmp_path / f"{name}.log" for name in COMMANDS}
    codes = {name: tmp_path / f"{name}.code" for name in COMMANDS}
    all_of_them = processes.start_program(EACH, json.dumps(COMMANDS), cwd=tmp_path)

    def reported(name: str) -> bool:
        return codes[name].exists() or (logs[name].exists() and "waits for Redis" in logs[name].read_text())

    # Worker and dispatcher wait for Redis, or end; all others end.
    waiting = ("worker", "dispatcher")
    processes.until(lambda: all(map(reported, waiting)), what="worker and dispatcher to log what is wrong")
    ending = COMMANDS.keys() - waiting
    processes.until(lambda: all(codes[name].exists() for name in ending), what="the other commands to end")
    assert codes["shell"].read_text() != "0"
    assert "Traceback" in logs["shell"].read_text()
    for log in logs.values():
        assert_clean(log.read_text())
    assert_clean(" ".join(group(all_of_them)))


def test_no_repr_or_text_of_an_object_shows_it(server: LocalRedisServer, settings: Any) -> None:
    forms: list[Any] = [
        url(server),
        {"url": url(server)},
        {"host": "127.0.0.1", "port": server.port, "username": "app", "password": CANARY},
        lambda: url(server),
        functools.partial(Redis.from_url, url(server)),
        functools.partial(str, url(server)),
    ]
    for form in forms:
        settings.DELAYQ = {"REDIS": form}
        store = get_store()
        job = tasks.noop.after(60).enqueue(1)
        config = get_config()
        shard = store.shards[0]
        objects = [
            config,
            config.redis,
            store,
            shard,
            shard.label,
            shard.client,
            shard.blocking_listener(),
            job,
            job.job,
        ]
        objects += [
            store.topology,
            shard.route,
            shard.route.node,
            store.topology.connections,
            store.enqueue_api(0),
            store.lookup(0),
            Promotion(shard),
            read_config,
        ]
        assert_clean(" ".join(f"{each} {each!r}" for each in objects))
        shard.client.connection_pool.disconnect()


def test_no_error_shows_it(server: LocalRedisServer, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = url(server, password=f"{CANARY}-not")
    for given, kind in ((wrong, StoreAuthError), (f"redis://app:{CANARY}@127.0.0.1:1/0", StoreUnavailable)):
        settings.DELAYQ = {"REDIS": given, "ENQUEUE_TIMEOUT": 1}
        calls: list[Callable[[], Any]] = [
            lambda: tasks.noop.enqueue(1),
            lambda: inspection().counts(),
            lambda: get_store().lookup(0).find(bytes(12)),
            lambda: one_by_one().cancel(bytes(12)),
            lambda: get_store().shards[0].blocking_listener().listen(["x"], now=0.0),
            lambda: get_store().check_servers(),
        ]
        for call in calls:
            with pytest.raises(StoreError) as raised:
                call()
            assert isinstance(raised.value, kind)
            assert_clean(everything_of(raised.value))
    assert_clean(caplog.text)


def test_no_command_prints_it_when_all_is_well(server: LocalRedisServer, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": url(server)}
    printed = io.StringIO()
    for command, options in (("delayq_acl", {}), ("delayq_check", {"json": True}), ("delayq_check", {}), ("check", {})):
        call_command(command, stdout=printed, stderr=printed, **options)
    assert "ACL SETUSER" in printed.getvalue()
    assert_clean(printed.getvalue())


def test_the_search_finds_it() -> None:
    """Without this test, a search that never finds anything would pass too."""
    try:
        raise redis.ConnectionError("x") from ValueError(f"cannot reach redis://app:{CANARY}@host")
    except redis.ConnectionError as error:
        with pytest.raises(AssertionError):
            assert_clean(everything_of(error))
    assert any(pid == os.getpid() for pid, _ in command_lines())
