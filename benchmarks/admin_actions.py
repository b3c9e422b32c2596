"""The speed of the admin's actions and downloads: python -m benchmarks.admin_actions [jobs]

Each action changes all jobs of a list (100,000 by default), as a person does who selects all that match: the count, the
confirm page, and as many requests as it takes. It prints the jobs a second, the CPU time of this process and of Redis a
job, and the longest call of Redis. A download has as many rows.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django

from benchmarks.admin_pages import signed_in_client
from django_delayq.testing.local_redis import LocalRedisServer

#: Action -> its list, and what the person fills in.
ACTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "run_now": ("scheduled", {}),
    "reschedule": ("scheduled", {"shift": "90"}),
    "move": ("scheduled", {"queue": "other", "new_queue": "other"}),
    "cancel": ("scheduled", {}),
    "retry": ("failed", {}),
    "retry_later": ("failed", {"minutes": "10"}),
    "delete": ("failed", {}),
}
DOWNLOADS = {"failed": "ndjson", "failed, CSV": "csv", "scheduled": "ndjson"}


def main() -> None:
    """Measure every action and download, and print a table."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with LocalRedisServer() as server:
        os.environ |= {"DELAYQ_TEST_REDIS": server.url, "DJANGO_SETTINGS_MODULE": "tests.admin.settings"}
        django.setup()
        browser = signed_in_client()
        print(f"{jobs:,} jobs, {os.cpu_count()} cores")
        print(f"{'what':24} {'a second':>9} {'web CPU':>9} {'Redis CPU':>9} {'longest':>9}")
        with server.client() as client:
            for name, (list_name, fields) in ACTIONS.items():
                client.flushall()
                _fill(list_name, jobs)
                with _measured(client, name, jobs):
                    _act(browser, list_name, name, jobs, fields)
            for label, kind in DOWNLOADS.items():
                list_name = label.split(",")[0]
                client.flushall()
                _fill(list_name, jobs)
                with _measured(client, f"download of {label}", jobs):
                    _download(browser, list_name, kind, jobs)


def _fill(list_name: str, jobs: int) -> None:
    """Store as many jobs of the list."""
    from benchmarks.admin_pages import fail_all
    from django_delayq import enqueue_many
    from tests.sample_app.tasks import noop

    options = {"delay": 3_600} if list_name == "scheduled" else {"queue": "dying"}
    enqueue_many((noop.using(**options).job(number, "short", kind={"a": 1}) for number in range(jobs)), on_progress=id)
    if list_name == "failed":
        fail_all("dying")


def _act(browser: Any, list_name: str, action: str, jobs: int, fields: dict[str, str]) -> None:
    """Select all jobs of a list, confirm the action and continue to its end."""
    from tests.admin.conftest import page
    from tests.admin.forms import form_to

    response = form_to(browser.get(page(list_name)), "/action/").post(browser, action=action, all="yes")
    typed = {"typed_confirmation": str(jobs)} if "typed_confirmation" in response.content.decode() else {}
    response = form_to(response, "/action/").post(browser, **fields, **typed)
    while response.status_code == 200:
        assert "data-continue" in response.content.decode(), response.content.decode()
        response = form_to(response, "/action/").post(browser)
    assert f"{jobs:,} " in browser.get(response.url).content.decode()


def _download(browser: Any, list_name: str, kind: str, jobs: int) -> None:
    from tests.admin.conftest import page

    response = browser.get(page("export", list_name, **({"format": "csv"} if kind == "csv" else {})))
    lines = sum(part.count(b"\n") for part in response.streaming_content)
    assert lines >= jobs, lines


@contextmanager
def _measured(client: Any, name: str, jobs: int) -> Iterator[None]:
    """Print what the block cost."""
    client.config_set("slowlog-log-slower-than", 1_000)
    client.slowlog_reset()
    redis_cpu = _cpu_of(client)
    before, began, worked = redis_cpu(), time.perf_counter(), time.process_time()
    yield
    took, cpu, redis_s = time.perf_counter() - began, time.process_time() - worked, redis_cpu() - before
    longest_us = max((call["duration"] for call in client.slowlog_get(128)), default=0)
    print(
        f"{name:24} {jobs / took:9,.0f} {cpu / jobs * 1e6:6.0f} us {redis_s / jobs * 1e6:6.0f} us"
        f" {longest_us / 1_000:6.1f} ms",
        flush=True,
    )


def _cpu_of(client: Any) -> Callable[[], float]:
    def cpu() -> float:
        found = client.info("cpu")
        return float(found["used_cpu_sys"] + found["used_cpu_user"])

    return cpu


if __name__ == "__main__":
    main()
