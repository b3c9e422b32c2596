#!/usr/bin/env python
"""The demo: an evening at the market, with a private Redis, a new database and every process of a real site.

    python example_project/demo.py               until Ctrl-C
    python example_project/demo.py --seconds 8   ends by itself; exit code 0 only if every job ran as expected

It starts a Redis server found on this machine; DELAYQ_REDIS_URL names another one. It leaves no process and no file.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

try:
    import django
    from django.core.management import call_command

    from demo.processes import ChildEnded, Processes, demo_redis
    from django_delayq.testing.local_redis import ServerNotFound, free_port
except ImportError as error:
    sys.exit(
        f"{error}. The demo needs Django and redis:\n"
        f"  python3 -m venv .venv && .venv/bin/pip install -e '.[demo]' && .venv/bin/python {sys.argv[0]}"
    )

#: Seconds of an evening without --seconds.
DEFAULT_SECONDS = 40.0
#: Seconds a process may take to start on a slow machine.
START_LIMIT = 60.0


def main() -> int:
    """Parse the arguments, run the demo, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="end by itself after an evening of this many seconds (4 or more)")
    seconds = parser.parse_args().seconds
    if seconds is not None and seconds < 4:
        parser.error("--seconds must be 4 or more: a shorter evening ends before a killed worker's job is recovered")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_redis() as redis_url, tempfile.TemporaryDirectory(prefix="market-demo-") as folder:
            prepare(redis_url, Path(folder), unit=(seconds or DEFAULT_SECONDS) / 8)
            return run_demo(Path(folder), seconds)
    except ServerNotFound as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("\nAll ended.")
        return 0 if seconds is None else 130
    return 1


def prepare(redis_url: str, folder: Path, *, unit: float) -> None:
    """Set the environment of the settings, here and in all children, and create a database with two players."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "marketplace.settings",
        "DELAYQ_REDIS_URL": redis_url,
        # A Redis named by DELAYQ_REDIS_URL may hold jobs of an earlier demo, about sales of another database.
        "MARKET_PREFIX": f"market-demo-{os.getpid()}-{int(time.time())}",
        "DATABASE_URL": f"sqlite:///{folder}/market.sqlite3",
        "MARKET_DEMO": "1",
        "MARKET_LEASE": "1",
        "MARKET_REMINDER_LEAD": str(0.8 * unit),
        "MARKET_RETRY_BASE": str(0.3 * unit),
        "PYTHONUNBUFFERED": "1",
        "DEBUG": "1",
    }
    django.setup()
    call_command("migrate", verbosity=0)
    from django.contrib.auth import get_user_model  # needs the apps that django.setup() loads

    players = get_user_model().objects
    players.create_superuser("demo", password="demo")
    players.create_user("mira", password="mira")


def run_demo(folder: Path, seconds: float | None) -> int:
    """Start the processes, play the evening and check it; without `seconds` keep the market open until Ctrl-C."""
    from demo.console import Console  # these need the apps that django.setup() loads
    from demo.scenario import Scenario

    console, processes = Console(), Processes(folder)
    address = f"127.0.0.1:{free_port()}"
    try:
        pids = {name: processes.start(name, f"run_{name}") for name in ("dispatcher", "worker")}
        pids["web"] = processes.start("web", "runserver", "--noreload", "--skip-checks", address)
        console.write(console.paint("bold", "\n  Moonrise Market\n"))
        console.heading("Redis", os.environ["DELAYQ_REDIS_URL"])
        console.heading("Processes", ", ".join(f"{name} {pid}" for name, pid in pids.items()))
        wait_for(lambda: responds(f"http://{address}/"), processes, "the web site")
        console.heading("Web", f"http://{address}/   sign in as demo, password demo")
        console.heading("Admin", f"http://{address}/admin/")
        run_first_job(processes)
        console.heading("Ready", "a first delayed job has run\n")

        scenario = Scenario((seconds or DEFAULT_SECONDS) / 8, processes, console)
        scenario.begin()
        findings = scenario.play()
        problems = scenario.problems()
        console.summary(findings, problems)
        failed = bool(problems) or any(finding.problems for finding in findings)
        if failed:
            for name in pids:
                console.write(f"\n  The end of the {name}'s log:\n{processes.tail(name)}")
        if seconds is None:
            keep_open(scenario, f"http://{address}/")
        return int(failed)
    except ChildEnded as error:
        console.write(console.paint("bad", f"\n  {error}"))
        return 1
    finally:
        processes.end()


def run_first_job(processes: Any) -> None:
    """Run one delayed job, so that the evening begins with a working dispatcher and worker."""
    from market.failing_tasks import greet
    from market.run_log import TaskRun

    job = greet.after(0.05).enqueue("everybody")
    wait_for(TaskRun.objects.filter(job_id=job.id, outcome="done").exists, processes, "the first job")


def keep_open(scenario: Any, url: str) -> None:
    """Put up sales that open later, and print what happens until Ctrl-C."""
    console, unit = scenario.console, scenario.unit
    console.write(f"\n  The market stays open: {url}\n  Sell something, and watch here. Ctrl-C ends everything.\n")
    for seller, name, kind, minutes in (
        (scenario.mira, "Tincture of second thoughts", "potion", 2),
        (scenario.demo, "Compass that points home", "gem", 12),
        (scenario.mira, "Lantern of the last ferry", "lantern", 150),
        (scenario.demo, "Blade named Tuesday", "blade", 1700),
    ):
        scenario.put_up(seller, name, kind, opens=minutes * 60 / unit, lasts=600 / unit)
    while True:
        scenario.poll()
        time.sleep(0.1)


def wait_for(condition: Callable[[], bool], processes: Any, what: str) -> None:
    """Wait until the condition holds; raise if a process ends first or `START_LIMIT` passes."""
    deadline = time.monotonic() + START_LIMIT
    while not condition():
        processes.check()
        if time.monotonic() > deadline:
            logs = "\n".join(f"  {name}:\n{processes.tail(name)}" for name in ("dispatcher", "worker", "web"))
            raise SystemExit(f"{what} was not ready within {START_LIMIT:.0f} s. The ends of the logs:\n{logs}")
        time.sleep(0.02)


def responds(url: str) -> bool:
    """Return whether the web site serves its front page."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
