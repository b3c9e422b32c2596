"""Prometheus itself: it scrapes a dispatcher and a worker, and evaluates the alert rules."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sample_app.tasks import noop
from tests.subprocesses import Command, Processes, until

RULES = Path(__file__).parents[3] / "docs" / "deployment" / "alerts.yml"
CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: delayq
    static_configs: [{{targets: {targets}}}]
"""


@contextmanager
def running(program: str, folder: Path, *, targets: Sequence[str]) -> Iterator[Callable[[str], Any]]:
    """Start a Prometheus that scrapes these addresses; yield a function that asks its API."""
    (folder / "prometheus.yml").write_text(CONFIG.format(rules=RULES, targets=json.dumps(targets)))
    files = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    command = [program, *files, "--web.listen-address=127.0.0.1:0"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        pattern = re.compile(r'"Listening on" address=(\S+)')
        [address] = until(lambda: pattern.findall(log.read_text()), what="its address", details=log.read_text)
        # Until then it answers 503.
        until(lambda: "Server is ready" in log.read_text(), what="it to be ready", details=log.read_text)

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=30) as response:
                return json.load(response)["data"]

        yield ask
    finally:
        process.terminate()
        process.wait()


def test_a_real_prometheus_scrapes_a_worker_and_evaluates_the_rules(
    programs: tuple[str, str], processes: Processes, tmp_path: Path
) -> None:
    program, promtool = programs
    noop.using(queue="mail").after(600).enqueue(1)
    commands = [processes.start(name, "--http", "127.0.0.1:0") for name in ("run_dispatcher", "run_worker")]
    targets = [_address(processes, each) for each in commands]
    for target in targets:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=30) as response:
            _check(promtool, "metrics", text=response.read().decode())
    _check(promtool, "rules", str(RULES))
    with running(program, tmp_path, targets=targets) as ask:
        for query in ('delayq_jobs{queue="mail",state="scheduled"}', 'delayq_processes{kind="worker"}'):
            path = f"query?query={urllib.parse.quote(query)}"
            until(lambda path=path: _values(ask(path)) == dict.fromkeys(targets, "1"), what=query)
        # Before the first scrape there were no figures.
        until(lambda: set(_states(ask).values()) == {("ok", "inactive")}, what="the evaluation of all rules")
        assert commands[1].end() == 0
        # The alert waits a minute until it fires.
        until(lambda: _states(ask)["DelayqNoWorker"] == ("ok", "pending"), what="the alert")


def _address(processes: Processes, command: Command) -> str:
    """Wait until a command has printed where it answers, and return that."""
    processes.until(lambda: "Monitoring at http://" in command.output, what="its address")
    return command.output.split("Monitoring at http://")[1].split("/metrics")[0]


def _check(promtool: str, *what: str, text: str = "") -> None:
    done = subprocess.run([promtool, "check", *what], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _values(found: Any) -> dict[str, str]:
    """Return the value of each target."""
    return {sample["metric"]["instance"]: sample["value"][1] for sample in found["result"]}


def _states(ask: Callable[[str], Any]) -> dict[str, tuple[str, str]]:
    """Return the health and the state of each rule."""
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    return {rule["name"]: (rule["health"], rule["state"]) for rule in rules}
