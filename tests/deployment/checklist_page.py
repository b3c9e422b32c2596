"""The page docs/checklist.md, from what the checks can report: `python -m tests.deployment.checklist_page`."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from django_delayq.exceptions import see
from django_delayq.management.commands.delayq_check import _DRIFT, _INCOMPATIBLE
from tests.deployment.findings import PACKAGE, Source, SystemCheck, link

PAGE = Path(__file__).parents[2] / "docs" / "checklist.md"
#: How the texts of the command end that name a page.
_ADDRESS = re.compile(re.escape(see("PAGE")).replace("PAGE", r"(\S+?)") + r"(#\S+)?$")
HEAD = """\
# Production checklist

This page lists what to check before the first deploy and before each one. Commands do most of it:

```console
$ python manage.py check --deploy
$ python manage.py delayq_check
$ python manage.py delayq_check --alive
```

All exit with 1 if anything is wrong. The tables below list everything that the checks of django_delayq can report. `…`
stands for a value.

<!-- Generated from the code of the checks by `make pages`; do not edit. -->

## What no command can see

- [ ] Every process has the same `DELAYQ`, `SECRET_KEY` and release. Only during a deploy there are two releases.
- [ ] Redis has a password or a user by [ACL rules](redis/security.md#redis-users), and no other network
  reaches it.
- [ ] Two projects on one Redis have different `PREFIX`es.
- [ ] `appendfsync` and replication fit [what you may lose](redis/reliability.md#what-redis-can-lose).
- [ ] Backups of Redis are made. A job is nowhere else, not even in your database.
- [ ] Memory is enough for the largest number of waiting jobs: see [Scaling](redis/scaling.md).
- [ ] Tasks [may run twice](redis/reliability.md) without harm, and long ones end within `GRACE` or continue where they
  were.
- [ ] A supervisor restarts each process, and gives a worker `GRACE` and 10 s to stop: see [Deployment](deployment.md).
- [ ] There are two workers for each queue on different hosts, and a dispatcher.
- [ ] Somebody gets an alert if jobs are late or fail: see [Monitoring](running/monitoring.md).
- [ ] `SIGN` or [`ENCRYPT`](redis/encryption.md) is on if others can write to or read that Redis.
- [ ] Staff has the [permissions](running/admin.md#permissions) for the pages in the admin that it needs, and
  no more.
- [ ] `delayq_check` runs with the new code before each deploy.
"""

#: Id of a system check -> what it asks, and the cure if the check has no hint of its own.
QUESTIONS = {
    "delayq.E001": ("Is `DELAYQ` set?", ""),
    "delayq.E002": ("Is `DELAYQ` a dict?", ""),
    "delayq.E003": ("Does `DELAYQ` have `REDIS`?", ""),
    "delayq.E004": (
        "Is every key of `DELAYQ` known?",
        "Write the key that the message names: see [Settings](reference/settings.md).",
    ),
    "delayq.E005": (
        "Do the client library and the cache accept `REDIS`?",
        "Change `REDIS` as the message says: see [Connections](redis/connections.md).",
    ),
    "delayq.E006": ("Is every value of `DELAYQ` legal?", "Write a value that [Settings](reference/settings.md) lists."),
    "delayq.E007": ("Can the permission functions of `ADMIN` be imported?", ""),
    "delayq.E008": ("Do the retry policies in settings name exceptions that exist, by their own path?", ""),
    "delayq.E009": (
        "Do the retry policies and options of tasks name exceptions that exist?",
        "Name the class itself, or its own path: see [Retries](tasks/retries.md).",
    ),
    "delayq.E010": ("Is `OPTIONS` of each backend in `TASKS` a dict?", "Write a dict."),
    "delayq.E011": ("Does `OPTIONS` leave to `DELAYQ` what it decides?", ""),
    "delayq.E012": ("Is `ON_COMMIT` of each backend True or False?", "Write True or False."),
    "delayq.E013": (
        "Are the `TASKS` in `OPTIONS` legal options of tasks?",
        "Change the option that the message names: see [Django's own tasks](tasks/django-tasks.md).",
    ),
    "delayq.W014": ("Is each path in these `TASKS` that of a `@task`?", ""),
    "delayq.E015": ("Does each alias with settings of its own have a store of its own?", ""),
    "delayq.E020": (
        "Is every entry of `MIDDLEWARE` a middleware?",
        "Name a class as [Middleware](tasks/middleware.md) shows.",
    ),
    "delayq.E021": ("Is the task of each declared schedule known?", ""),
    "delayq.E022": ("Do the arguments of each declared schedule fit its task?", "Change its args or kwargs."),
    "delayq.W023": ("Does each declared schedule have further occurrences?", ""),
    "delayq.E024": (
        "Is the queue of each declared schedule one of `QUEUES`?",
        "Change `queue=` of the task, or add it to `QUEUES`.",
    ),
    "delayq.W025": ("Is it clear which server of a cache has the jobs?", ""),
    "delayq.W007": ("Do workers import every module with tasks?", ""),
}


def system_checks() -> dict[str, SystemCheck]:
    """Return the system checks by id; of several with one id, the one with the longest hint."""
    paths = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    found = [each for path in paths for each in Source(path).system_checks()]
    return {each.id: each for each in sorted(found, key=lambda each: len(each.hint))}


def servers() -> dict[str, list[str]]:
    """Return what can be wrong with servers: what stops the start of a process, what is wrong now, and what may be."""
    info, check = Source("store/servers/server_info.py"), Source("store/servers/server_check.py")
    return {
        "no process starts": info.sentences("fatal"),
        "wrong": [
            "A server does not answer, or refuses the user.",
            *info.sentences("errors"),
            *check.sentences("errors", "_about_wanted_replicas"),
        ],
        "warning": [
            *info.sentences("warnings", "unknown_policy"),
            *check.sentences("_about_failover", "_about_clocks", "_about_shares"),
        ],
        "not checked": check.sentences("unchecked"),
    }


def layout_and_schedules() -> list[str]:
    """Return what can be wrong with the number of shards, and with recurring schedules."""
    return Source("management/preflight.py").sentences("judge_layout", "judge_schedules")


def liveness() -> dict[str, list[str]]:
    """Return what --alive can report."""
    source = Source("monitoring/liveness.py")
    return {
        "wrong": source.sentences("_no_process", "_dispatch", "_unserved"),
        "warning": source.sentences("_several_projects", "_unreadable", "_busy"),
    }


def _table(*rows: Iterable[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        if not number:
            yield f"|{'---|' * len(list(row))}"
    yield ""


def _sentence(text: str) -> str:
    """Return a text that begins with a capital, and with a link in place of an address."""
    return _ADDRESS.sub(lambda found: link(found[1] + (found[2] or "")), f"{text[0].upper()}{text[1:]}")


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    yield "## Settings and tasks: `check`\n"
    yield "These connect to nothing.\n"
    checks = sorted(system_checks().values(), key=lambda each: each.id[-3:])
    yield from _table(
        ("id", "asks", "cure"),
        *((f"`{each.id}`", QUESTIONS[each.id][0], QUESTIONS[each.id][1] or each.hint) for each in checks),
    )
    yield "## Servers: `delayq_check`\n"
    yield from _table(("level", "message"), *((level, text) for level, texts in servers().items() for text in texts))
    yield "## Shards and recurring schedules: `delayq_check`\n"
    yield from _table(("message",), *((_sentence(text),) for text in layout_and_schedules()))
    yield "## Keys: `delayq_check`\n"
    yield "`--repair` does what the last column says, also while the system runs.\n"
    yield from _table(("code", "counts", "`--repair`"), *((f"`{code}`", *texts) for code, texts in _DRIFT.items()))
    yield "## Waiting jobs: `delayq_check`\n"
    yield "It also warns of jobs that wait although their [expiry](tasks/options.md#expiry) is over.\n"
    yield from _table(
        ("a job would end", "because, and the cure"),
        *((f"`{kind.value}`", _sentence(text)) for kind, text in _INCOMPATIBLE.items()),
    )
    yield "## Right now: `delayq_check --alive`\n"
    yield from _table(("level", "message"), *((level, text) for level, texts in liveness().items() for text in texts))


def page() -> str:
    """Return the page."""
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
