#!/usr/bin/env python
"""The demo: an evening at the market, with a private Redis, fresh database and every process of a real site.

    python example_project/demo.py               until Ctrl-C
    python example_project/demo.py --seconds 8   ends by itself; code 0 only if all that was promised happened

Redis is found on this machine and ends with the demo; DELAYQ_REDIS_URL names another one. No process and no
file is left behind.
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

    from django_delayq.testing.local_redis import ServerNotFound, demo_url, free_port
except ImportError as error:
    sys.exit(
        f"{error}. The demo needs Django and redis:\n"
        f"  python3 -m venv .venv && .venv/bin/pip install -e '.[demo]' && .venv/bin/python {sys.argv[0]}"
    )

#: Seconds of the evening when nobody asks for a number.
UNHURRIED = 40.0
#: Seconds a process may take to start on a slow machine.
START_LIMIT = 60.0


def main() -> int:
    """Read the arguments, act, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="end by itself after an evening of this many seconds (4 or more)")
    seconds = parser.parse_args().seconds
    if seconds is not None and seconds < 4:
        parser.error("--seconds must be 4 or more: a shorter evening has no room for a worker that dies")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_url() as redis_url, tempfile.TemporaryDirectory(prefix="market-demo-") as folder:
            prepare(redis_url, Path(folder), unit=(seconds or UNHURRIED) / 8)
            return perform(Path(folder), seconds)
    except ServerNotFound as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("\nAll ended.")
        return 0 if seconds is None else 130
    return 1


def prepare(redis_url: str, folder: Path, *, unit: float) -> None:
    """Set what the settings read, here and in all children, and make the database with its two players."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "marketplace.settings",
        "DELAYQ_REDIS_URL": redis_url,
        # A Redis that is somebody's own may hold jobs of an earlier demo, about sales of another database.
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


def perform(folder: Path, seconds: float | None) -> int:
    """Start the processes, act the evening, judge it; without a number of seconds go on until Ctrl-C."""
    from stage.console import Console  # these need the apps that django.setup() loads
    from stage.processes import ChildEnded, Processes
    from stage.scenario import Scenario

    console, processes = Console(), Processes(folder)
    address = f"127.0.0.1:{free_port()}"
    try:
        pids = {name: processes.start(name, f"run_{name}") for name in ("dispatcher", "worker")}
        pids["web"] = processes.start("web", "runserver", "--noreload", "--skip-checks", address)
        console.say(console.paint("bold", "\n  Moonrise Market\n"))
        console.fact("Redis", os.environ["DELAYQ_REDIS_URL"])
        console.fact("Processes", ", ".join(f"{name} {pid}" for name, pid in pids.items()))
        wait_for(lambda: answers(f"http://{address}/"), processes, "the web site")
        console.fact("Web", f"http://{address}/   sign in as demo, password demo")
        console.fact("Admin", f"http://{address}/admin/")
        greet(processes)
        console.fact("Ready", "a first delayed job has run\n")

        scenario = Scenario((seconds or UNHURRIED) / 8, processes, console)
        scenario.begin()
        findings = scenario.play()
        problems = scenario.problems()
        console.summary(findings, problems)
        failed = bool(problems) or any(finding.wrong for finding in findings)
        if failed:
            for name in pids:
                console.say(f"\n  The end of the {name}'s log:\n{processes.tail(name)}")
        if seconds is None:
            linger(scenario, f"http://{address}/")
        return int(failed)
    except ChildEnded as error:
        console.say(console.paint("bad", f"\n  {error}"))
        return 1
    finally:
        processes.end()


def greet(processes: Any) -> None:
    """Send one delayed job through dispatcher and worker: the evening begins with both at their posts."""
    from market.ledger import LedgerEntry
    from market.rehearsals import greet

    job = greet.after(0.05).enqueue("everybody")
    wait_for(LedgerEntry.objects.filter(job_id=job.id, ending="done").exists, processes, "the first job")


def linger(scenario: Any, url: str) -> None:
    """Put up sales that open later, and report what happens, for as long as somebody looks."""
    console, unit = scenario.console, scenario.unit
    console.say(f"\n  The market stays open: {url}\n  Sell something, and watch here. Ctrl-C ends everything.\n")
    for seller, name, kind, minutes in (
        (scenario.mira, "Tincture of second thoughts", "potion", 2),
        (scenario.demo, "Compass that points home", "gem", 12),
        (scenario.mira, "Lantern of the last ferry", "lantern", 150),
        (scenario.demo, "Blade named Tuesday", "blade", 1700),
    ):
        scenario.put_up(seller, name, kind, opens=minutes * 60 / unit, lasts=600 / unit)
    while True:
        scenario.watch()
        time.sleep(0.1)


def wait_for(condition: Callable[[], bool], processes: Any, what: str) -> None:
    """Wait until the condition holds; end with an error if a process dies or it takes too long."""
    give_up = time.monotonic() + START_LIMIT
    while not condition():
        processes.check()
        if time.monotonic() > give_up:
            logs = "\n".join(f"  {name}:\n{processes.tail(name)}" for name in ("dispatcher", "worker", "web"))
            raise SystemExit(f"{what} did not come within {START_LIMIT:.0f} s. The ends of the logs:\n{logs}")
        time.sleep(0.02)


def answers(url: str) -> bool:
    """Tell whether the web site serves its front page."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
