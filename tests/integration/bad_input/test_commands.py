"""Commands with bad settings or bad options."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from django_delayq.exceptions import (
    StoreUnavailable,
)
from django_delayq.job.retry import RetryPolicy
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.bad_input.refusals import SECRET
from tests.sample_app.tasks import noop


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
def test_settings_that_cannot_work_fail_the_checks(delayq: Any, number: str, words: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = delayq
    [found] = [message for message in checks.run_checks() if str(message.id).startswith("delayq.E")]
    assert found.id == f"delayq.{number}" and found.hint and found.level == checks.ERROR
    assert SECRET not in str(found)
    with pytest.raises(ImproperlyConfigured, match=words) as caught:
        noop.enqueue()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (RetryPolicy(retry_on="json.decoder.JSONDecodeErrr"), "retry_on of DELAYQ.*'RETRY'.* has no 'JSONDecodeErrr'"),
        (RetryPolicy(dead_on="json.JSONDecodeError"), "exceptions have the path 'json.decoder.JSONDecodeError'"),
    ],
)
def test_a_policy_in_settings_that_names_no_exception_fails_the_checks(
    policy: RetryPolicy, words: str, delayq_settings: Any
) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RETRY": policy}
    [found] = [message for message in checks.run_checks() if str(message.id).startswith("delayq.E")]
    assert found.id == "delayq.E008" and found.hint and re.search(words, found.msg)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unusable_certificate_is_refused(content: str | None, tmp_path: Path, delayq_settings: Any) -> None:
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
        (["--queues", "mail*,"], "--queues: queue must be 1 to 200 bytes"),
        (["--queues=-"], "--queues: '-' excludes no queue; write -NAME"),
        (["--queues", "50%"], "--queues: '50%' has a % without two hexadecimal digits; write %25"),
        (["--queues", "mail,-m*"], r"--queues: -m\* excludes every queue of the list"),
        (["--queues=-blk"], "--queues: queue 'blk' is not declared.*did you mean 'bulk'"),
        (["--queues", "-mail"], "--queues: expected one argument; write --queues=-slow"),
        (["--weights", "mail=0"], "--weights: 'mail=0' must have a whole number, 1 to 100, behind the ="),
        (["--weights", "mail=101"], "--weights: 'mail=101' must have a whole number, 1 to 100"),
        (["--weights", "mail=many"], "--weights: 'mail=many' must have a whole number"),
        (["--weights", "mail=1,mail=2"], "--weights: 'mail' is the same queue as an item before it; give each queue"),
        (["--weights", ""], "--weights: '' has no weight; write NAME=WEIGHT, for example mail=6,bulk=1"),
        (["--weights", "mail=6", "--queues", "mail"], "--weights: it names the queues itself, so leave out --queues"),
        (["--weights", "blk=6"], "--weights: queue 'blk' is not declared.*did you mean 'bulk'"),
        (["--weights", "mail=0", "--processes", "2"], "--weights: 'mail=0' must have"),
        (["--weights"], "--weights: expected one argument; write --weights mail=6,bulk=1"),
        (["--nonsense"], "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_bad_options_of_run_worker_are_refused(options: list[str], words: str, delayq_settings: Any) -> None:
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
def test_commands_refuse_settings_that_cannot_work(command: str, delayq: Any, words: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = delayq
    with pytest.raises(CommandError, match=words) as caught:
        call_command(command, stdout=io.StringIO())
    assert SECRET not in str(caught.value)


def test_a_check_reports_that_redis_refuses_it(guarded: LocalRedisServer, delayq_settings: Any) -> None:
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
        (["run_worker", "--weights", "mail=0"], 1, "CommandError: --weights: 'mail=0' must have a whole number"),
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
