"""Every command of the files runs as it stands: in the example project, with its probes, until SIGTERM."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class
from redis import Redis

from tests.deployment.files import DOCKERFILE, EXAMPLE, UNITS, commands, container, not_run, of_kind, services, unit
from tests.subprocesses import PATIENCE, until

#: What stays in place of the port 9180, which other tests may have: any free one.
ANY_PORT = re.compile(r":9180\b")


@pytest.mark.parametrize(("place", "words"), list(commands()))
def test_every_option_of_a_command_exists(place: str, words: list[str]) -> None:
    name, *options = words
    app = "django.core" if name == "migrate" else "django_delayq"
    parser = load_command_class(app, name).create_parser("manage.py", name)
    # Raises CommandError, which names the option.
    parser.parse_args(options)


class Example:
    """The example project with a database of its own."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.folder, self.log = EXAMPLE, folder / "log"
        self.environ = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            # In its place in an image, the package is installed.
            "PYTHONPATH": str(EXAMPLE.parent),
            "DJANGO_SETTINGS_MODULE": "marketplace.settings",
            "DELAYQ_REDIS_URL": redis_url,
            "DATABASE_URL": f"sqlite:///{folder}/db.sqlite3",
            "DEBUG": "0",
        }

    @property
    def output(self) -> str:
        """What its processes have printed."""
        return self.log.read_text()

    @contextmanager
    def running(self, *words: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command; it is stopped by SIGTERM, and must end by itself, without an error."""
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                words, cwd=self.folder, env={**self.environ, **environ}, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
            process.terminate()
            assert process.wait(PATIENCE) == 0, self.output
        finally:
            process.kill()
            process.wait()

    def monitoring(self) -> str:
        """Wait for the address of --http, and return it."""
        pattern = re.compile(r"Monitoring at http://([\d.]+:\d+)/metrics")
        found = until(lambda: pattern.search(self.output), what="its address", details=lambda: self.output)
        assert found is not None
        return found[1].replace("0.0.0.0", "127.0.0.1")

    def passes(self, words: list[str]) -> bool:
        """Return whether a health check exits with 0."""
        return subprocess.run([sys.executable, *words[1:]], env=self.environ, capture_output=True).returncode == 0

    def becomes_healthy(self, words: list[str]) -> None:
        """Repeat a health check until it passes, as Docker does while a container starts."""
        until(lambda: self.passes(words), what="the health check to pass", details=lambda: self.output)


@pytest.fixture
def example(tmp_path: Path, client: Redis, redis_url: str) -> Example:
    """The example project on the Redis of the tests."""
    return Example(tmp_path, redis_url)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_command_of_a_unit_reports_to_systemd(path: Path, example: Example, tmp_path: Path) -> None:
    found = unit(path)
    line = ANY_PORT.sub(":0", found["ExecStart"][0].replace("%i", "mail"))
    words = [sys.executable, *shlex.split(line)[1:]]
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(environ["NOTIFY_SOCKET"])
        systemd.settimeout(PATIENCE)
        said: list[bytes] = []

        def hears(*texts: bytes) -> bool:
            said.append(systemd.recv(100))
            return {*texts} <= {*said}

        with example.running(*words, **environ) as process:
            # The watchdog may come first, and several times: it counts from the start.
            until(
                lambda: hears(b"READY=1", b"WATCHDOG=1"),
                what="it to be ready and alive",
                details=lambda: example.output,
            )
            assert said.count(b"READY=1") == 1
            assert {*said} == {b"READY=1", b"WATCHDOG=1"}, example.output
            process.terminate()
            # Before its end: what nobody reads meanwhile is not sent.
            until(lambda: hears(b"STOPPING=1"), what="it to stop", details=lambda: example.output)
            # A second SIGTERM could kill an interpreter that ends.
            process.wait(PATIENCE)
    if "@" in path.name:
        assert "serves mail at " in example.output


@pytest.mark.parametrize("workload", of_kind("Deployment"), ids=lambda each: each["metadata"]["name"])
def test_the_probes_of_a_deployment_pass(workload: dict[str, Any], example: Example) -> None:
    found = container(workload)
    words = [sys.executable, *(ANY_PORT.sub(":0", word) for word in found["command"][1:])]
    with example.running(*words):
        address = example.monitoring()
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            url = f"http://{address}{found[name]['httpGet']['path']}"
            # Raises HTTPError for 503, until the first report of the process has reached Redis.
            until(lambda url=url: is_ok(url), what=f"{name} to pass", details=lambda: example.output)


@pytest.mark.parametrize("name", ["dispatcher", "worker"])
def test_the_health_check_of_a_service_passes_while_it_runs(name: str, example: Example) -> None:
    service = services()[name]
    words = [sys.executable, *(ANY_PORT.sub(":0", word) for word in service["command"][1:])]
    kind, *check = service["healthcheck"]["test"]
    assert kind == "CMD"
    with example.running(*words):
        port = example.monitoring().rpartition(":")[2]
        check = [ANY_PORT.sub(f":{port}", word) for word in check]
        example.becomes_healthy(check)
    assert not example.passes(check)


def test_the_web_site_of_the_image_is_healthy_and_has_its_static_files(example: Example, tmp_path: Path) -> None:
    if not (find_spec("gunicorn") and find_spec("whitenoise")):
        not_run("there is no gunicorn or WhiteNoise; both are in the extra deployment")
    text = DOCKERFILE.read_text()
    # As the image has it: without the static files that somebody collected here.
    example.folder = tmp_path / "app"
    shutil.copytree(EXAMPLE, example.folder, ignore=shutil.ignore_patterns("var", "db.sqlite3*"))
    [collect] = re.findall(r"^RUN python (manage.py .*)$", text, re.MULTILINE)
    for words in (collect.split(), services()["migrate"]["command"][1:]):
        subprocess.run([sys.executable, *words], cwd=example.folder, env=example.environ, check=True)
    [words] = re.findall(r'^CMD \["gunicorn", (.*)\]$', text, re.MULTILINE)
    options = [word.strip('"').replace("0.0.0.0:8000", "127.0.0.1:0") for word in words.split(", ")]
    with example.running(sys.executable, "-m", "gunicorn", *options):
        pattern = re.compile(r"Listening at: http://127.0.0.1:(\d+)")
        found = until(lambda: pattern.search(example.output), what="gunicorn", details=lambda: example.output)
        assert found is not None
        check = [word.replace(":8000", f":{found[1]}") for word in services()["web"]["healthcheck"]["test"][1:]]
        example.becomes_healthy(check)
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/static/market/market.css", timeout=10) as response:
            assert response.status == 200
    assert not example.passes(check)


def is_ok(url: str) -> bool:
    """Return whether a probe passes."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False
