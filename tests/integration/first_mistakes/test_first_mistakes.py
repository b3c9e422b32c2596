"""The ten first mistakes of a newcomer: the last line that they see names the mistake, its cure, and a page."""

import re
from collections.abc import Callable

import pytest
from redis import Redis

from django_delayq.exceptions import see
from django_delayq.store.keys import Keys
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.first_mistakes.conftest import PAGE_SETTINGS, Project
from tests.subprocesses import until
from tests.testing_helpers.docs.pages import runs, shown

ENQUEUE = "from shop.tasks import close_sale; close_sale.enqueue(42)"
#: Nothing listens there.
NO_REDIS = "redis://127.0.0.1:1/0"
FIRST_TEST = """
from django.test import TestCase
from shop.tasks import close_sale

class FirstTests(TestCase):
    def test_first(self):
        close_sale.using(store_result=True).enqueue(42).wait(timeout=5)

    def test_second(self):
        self.assertEqual(close_sale.enqueue(42).state, "ready")
"""
#: What the page shows of these tests.
FIRST_ERRORS = shown("docs/troubleshooting.md", "text", "NoResult: ")
#: Files of the page, which the project has.
TASKS, TESTS, MOMENTS = (
    shown("docs/troubleshooting.md", "python", f"# shop/{name}.py\n") for name in ("tasks", "tests", "moments")
)


def about(heading: str) -> str:
    """Return the sentence that names a section of the page."""
    return see(f"troubleshooting#{heading}")


def last_line(output: str) -> str:
    """Return the last line that a command printed."""
    return output.strip().splitlines()[-1]


def test_no_redis(project: Project) -> None:
    *_, error, note = project.shell(ENQUEUE, redis=NO_REDIS).strip().splitlines()
    assert "start it, or correct REDIS" in error and error.endswith(about("redis-does-not-answer"))
    assert "When Redis works again, error.resend()" in note and note.endswith(about("jobs-were-not-sent"))
    for command in ("run_worker", "run_dispatcher"):
        line = project.log_of(command, word="waits for Redis", redis=NO_REDIS)
        assert line.endswith(about("redis-does-not-answer"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("reids://localhost:6379/0", "unknown scheme (did you mean 'redis'?)"),
        ("localhost:6379", "neither a URL with its scheme nor an alias of CACHES"),
        ("redis://localhost:637900/0", "not a well-formed URL"),
        ("redis://localhost/jobs", "the database must be a number"),
        ("default", "is not Redis"),
    ],
)
def test_a_wrong_url_of_redis_is_reported_by_every_command(project: Project, url: str, words: str) -> None:
    output = project.run("check", redis=url)
    [error] = [number for number, line in enumerate(output.splitlines()) if "delayq.E005" in line]
    assert words in output.splitlines()[error]
    assert output.splitlines()[error + 1].endswith(about("a-setting-is-wrong"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("DELAYQ = {'REDSI': 'redis://localhost:6379/0'}", "has the unknown key 'REDSI' (did you mean 'REDIS'?)"),
        ("del DELAYQ", "The DELAYQ setting is missing."),
    ],
    ids=["a key", "the whole"],
)
def test_a_typing_error_in_the_setting(project: Project, setting: str, words: str) -> None:
    (project.folder / "newcomer" / "typing_error.py").write_text(f"from newcomer.settings import *\n{setting}\n")
    output = project.run("check", settings="newcomer.typing_error")
    [found] = [number for number, line in enumerate(output.splitlines()) if words in line]
    assert output.splitlines()[found + 1].endswith(about("a-setting-is-wrong"))


def test_a_url_of_another_password_or_database(project: Project, start_redis: Callable[..., LocalRedisServer]) -> None:
    line = last_line(project.run("delayq_check", redis=f"{project.redis.partition('?')[0]}?db=77"))
    assert "names a number that it does not have" in line and line.endswith(about("redis-does-not-answer"))
    server = start_redis(port=0, options={"requirepass": "open"})
    for url, cure in [
        (server.url, "REDIS has no password: write redis://:password@host"),
        (server.url.replace("://", "://:sesame@"), "check user and password in REDIS"),
    ]:
        line = last_line(project.run("delayq_check", redis=url))
        assert cure in line and line.endswith(about("redis-refuses-the-password"))


def test_no_worker_runs(project: Project) -> None:
    wait = f"{ENQUEUE.replace('.enqueue(42)', '.using(store_result=True).enqueue(42)')}.wait(timeout=0.1)"
    line = last_line(project.shell(wait))
    assert "no worker serves its queue 'default': start manage.py run_worker" in line
    assert line.endswith(about("nothing-runs"))
    warning = (
        f"Warning: No dispatcher and no worker is running: start run_dispatcher and run_worker. {about('nothing-runs')}"
    )
    assert warning in project.run("delayq_check").splitlines()


def test_a_task_of_an_app_that_is_not_installed(project: Project) -> None:
    project.shell("from blog.tasks import post; post.enqueue('hello')")
    line = project.log_of("run_worker", word="unknown task")
    assert "no app in INSTALLED_APPS has its module: install the app" in line
    assert line.rstrip('"').endswith(about("a-task-is-unknown"))
    assert about("a-task-is-unknown") in project.run("delayq_check")


@runs(PAGE_SETTINGS, TASKS, TESTS, FIRST_ERRORS)
def test_enqueueing_in_a_test_case(project: Project) -> None:
    (project.folder / "shop" / "test_first.py").write_text(FIRST_TEST)
    # The page's own tests pass: they use DelayQMixin.
    output = project.run("test", "shop", "--pattern", "test*.py", redis=NO_REDIS)
    assert "FAILED (failures=1, errors=1)" in output and "Ran 3 tests" in output
    said = re.sub(r"\bjob \S+ has", "job 01a2-0 has", output)
    assert [line for line in FIRST_ERRORS.splitlines() if line not in said] == []
    [line] = [line for line in output.splitlines() if line.startswith("django_delayq.exceptions.NoResult")]
    assert "In a TestCase none commits: use DelayQMixin" in line and line.endswith(about("a-job-stays-unsent"))


def test_an_argument_that_is_not_json(project: Project) -> None:
    program = (
        "from django.contrib.auth.models import User; from shop.tasks import close_sale; close_sale.enqueue(User())"
    )
    line = last_line(project.shell(program))
    assert "args[0] is a User" in line and "send its primary key (value.pk)" in line
    assert line.endswith(about("an-argument-is-not-json"))


@runs(MOMENTS)
def test_a_naive_datetime(project: Project) -> None:
    # The page's own moments are accepted.
    program = "from shop.moments import close_sale, datetime; close_sale.at(datetime.now()).enqueue(42)"
    line = last_line(project.shell(program))
    assert "use django.utils.timezone.make_aware(moment)" in line and line.endswith(about("a-datetime-is-naive"))


def test_a_worker_with_old_code(project: Project) -> None:
    tasks = project.folder / "shop" / "tasks.py"
    code = tasks.read_text()
    project.shell(ENQUEUE)
    try:
        tasks.write_text(code.replace("sale_id: int", "sale_id: int, reason"))
        line = project.log_of("run_worker", word="arguments do not fit")
    finally:
        tasks.write_text(code)
    assert "missing a required argument: 'reason'; give new parameters a default, or restart a worker" in line
    assert line.rstrip('"').endswith(about("the-arguments-do-not-fit"))


def test_a_redis_that_evicts_and_one_that_is_full(
    project: Project, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    for command in ("run_worker", "run_dispatcher"):
        line = last_line(project.run(command, redis=server.url))
        assert "set it to noeviction" in line and line.endswith(about("redis-may-evict-jobs"))
    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1mb")
    *_, error, note = project.shell(ENQUEUE, redis=server.url).strip().splitlines()
    assert "raise maxmemory" in error and error.endswith(about("redis-takes-no-writes"))
    assert note.endswith(about("jobs-were-not-sent"))


def test_two_projects_with_one_prefix(project: Project, client: Redis) -> None:
    project.shell(ENQUEUE)
    line = project.log_of("run_worker", word="unknown task", settings="other.settings")
    assert "'shop.tasks.close_sale'" in line and "give each project a PREFIX of its own" in line
    assert line.rstrip('"').endswith(about("a-task-is-unknown"))
    # If both have a task of one name, no job is refused.
    for settings in ("newcomer.settings", "other.settings"):
        project.start("run_worker", settings=settings)
    reports = Keys("delayq", 0)("process_reports")
    until(
        lambda: all(name in b"".join(client.hvals(reports)) for name in (b"newcomer.urls", b"other.urls")),
        what="both to report",
    )
    lines = project.run("delayq_check").splitlines()
    [warning] = [line for line in lines if "different SECRET_KEYs" in line]
    assert "newcomer.urls at " in warning and "other.urls at " in warning
    assert "give each project a PREFIX of its own" in warning
    assert warning.endswith(about("two-projects-share-a-prefix"))
