"""docs/checklist.md has everything that the checks can report, and nothing else."""

import re
from collections.abc import Iterator

import pytest

from django_delayq.exceptions import see
from django_delayq.store.servers.server_info import ServerInfo
from tests.deployment.checklist_page import PAGE, QUESTIONS, liveness, page, servers, system_checks
from tests.deployment.findings import PACKAGE

ID = re.compile(r'id="(delayq\.[EW]\d+)"')


def ids() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        yield from ID.findall(path.read_text())


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == page(), "docs/checklist.md is not up to date: run `make pages` and commit it"


def test_every_system_check_asks_something_and_has_a_cure() -> None:
    found = system_checks()
    assert found.keys() == set(ids()) == QUESTIONS.keys(), "tests/deployment/checklist_page.py needs a question"
    for name, (question, cure) in QUESTIONS.items():
        assert question.endswith("?") and (cure or found[name].hint), name
        assert found[name].level == {"E": "error", "W": "warning"}[name[7]]


@pytest.mark.parametrize("says", [text for texts in (*servers().values(), *liveness().values()) for text in texts])
def test_a_finding_is_a_sentence(says: str) -> None:
    assert re.fullmatch(r"[A-Za-z…][^{}]+\.", says)


def test_the_page_has_what_a_bad_server_makes_the_command_say() -> None:
    bad = ServerInfo(
        kind="redis",
        version="6.0.9",
        redis_version="6.0.9",
        policy="allkeys-lru",
        appends=False,
        disk_ok=False,
        replica=True,
        replicas=0,
        used_memory=99,
        maxmemory=100,
        ahead_us=9_000_000,
    )
    said = [*bad.fatal(), *bad.errors(), *bad.warnings()]
    # The command prints the address of what the page links to.
    link = re.compile(r"See \[\w+\]\((.+?)\.md(#.+?)\)\.$")
    shown = [link.sub(lambda found: see(found[1] + found[2]), text) for level in servers().values() for text in level]
    patterns = [re.compile(re.escape(text).replace("…", ".+")) for text in shown]
    assert len(said) == 7
    assert [text for text in said if not any(pattern.fullmatch(text) for pattern in patterns)] == []
