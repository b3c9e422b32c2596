"""Warm process: what it forks is what a new interpreter would be, and ends as one would."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.subprocesses import until
from tests.warm_process import ROOT, ForkedCommand, WarmProcess, python_path

REPORT = """
import json, os, random, signal, sys, threading

assert not [name for name in sys.modules if name.startswith(("django_delayq.backend", "tests"))]
handlers = {int(number): str(signal.getsignal(number)).partition(" at ")[0] for number in signal.valid_signals()}
facts = {
    "argv": [sys.argv, sys.orig_argv, sys.flags, sys.warnoptions],
    "path": sys.path,
    "environ": dict(os.environ),
    "folder": os.getcwd(),
    "main": [__name__, __spec__.name, sys.modules["__main__"].__file__],
    "files": sorted(os.listdir("/proc/self/fd")),
    "input": sys.stdin.read(),
    "streams": [(one.encoding, one.errors, one.line_buffering, one.write_through) for one in (sys.stdout, sys.stderr)],
    "threads": [one.name for one in threading.enumerate()],
    "main thread": threading.current_thread() is threading.main_thread(),
    "handlers": handlers,
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "limits": [os.umask(0o22), os.nice(0)],
}
import django_delayq
facts["package"] = [django_delayq.__file__, django_delayq.__path__]
print(json.dumps(facts))
print(random.random(), file=sys.stderr)
"""


@pytest.fixture
def start(warm_process: WarmProcess, tmp_path: Path) -> Iterator[Callable[..., ForkedCommand]]:
    """Fork a process that runs this text as a module; it prints to the file `log`."""
    started: list[ForkedCommand] = []

    def start(text: str) -> ForkedCommand:
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        with open(tmp_path / "log", "ab") as log:
            started.append(warm_process.start(["-m", "program"], environ=environ(tmp_path), log=log.fileno()))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(folder), "PYTHONUNBUFFERED": "1", "TZ": "Asia/Tokyo"}


def test_it_forks_what_a_new_interpreter_would_be(start: Callable[..., ForkedCommand], tmp_path: Path) -> None:
    forked = start(REPORT)
    assert forked.wait() == 0
    done = subprocess.run(
        forked.args,
        env=environ(tmp_path),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    facts, _ = (tmp_path / "log").read_text().splitlines()
    assert json.loads(facts) == json.loads(done.stdout)


def test_a_command_with_another_copy_of_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").touch()
    (tmp_path / "django_delayq").mkdir()
    (tmp_path / "django_delayq" / "__init__.py").touch()
    # Otherwise the current folder is before PYTHONPATH.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with WarmProcess() as warm, open(tmp_path / "log", "ab") as log:
        forked = warm.start(["-m", "program"], environ=environ(tmp_path), log=log.fileno())
        assert forked.wait() == 1
    assert str(tmp_path / "django_delayq") in (tmp_path / "log").read_text().splitlines()[-1]


def test_each_process_has_random_numbers_of_its_own(start: Callable[..., ForkedCommand], tmp_path: Path) -> None:
    assert [start(REPORT).wait() for _ in range(2)] == [0, 0]
    assert len(set((tmp_path / "log").read_text().splitlines()[1::2])) == 2


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_an_end_has_the_code_of_an_interpreter(
    start: Callable[..., ForkedCommand], tmp_path: Path, last: str, code: int
) -> None:
    program = "import atexit, threading\natexit.register(print, 'at exit')\n"
    # An interpreter waits for threads, then calls what atexit has. This thread lasts longer than the main thread.
    program += "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
    forked = start(program + last)
    assert forked.wait() == forked.returncode == forked.poll() == code
    if code != -signal.SIGTERM:
        assert (tmp_path / "log").read_text().endswith("thread\nat exit\n")


def test_a_killed_process_keeps_its_id_until_somebody_asks(start: Callable[..., ForkedCommand]) -> None:
    forked = start("import signal; signal.pause()")
    assert forked.poll() is None
    os.killpg(forked.pid, signal.SIGKILL)
    stat = Path(f"/proc/{forked.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", what="the end")
    assert forked.wait() == -signal.SIGKILL
    assert not stat.exists()
    # The id may be that of another process by now.
    forked.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "warm.__exit__()"])
def test_no_process_outlives_the_process_of_pytest(tmp_path: Path, end: str) -> None:
    (tmp_path / "program.py").write_text("import signal; signal.pause()")
    owner = f"""
        import os, sys
        from tests.warm_process import WarmProcess
        warm = WarmProcess()
        environ = {{**os.environ, "PYTHONPATH": {python_path(tmp_path)!r}}}
        print(warm.start(["-m", "program"], environ=environ, log=2).pid, flush=True)
        {end}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(owner)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    pid = int(done.stdout)
    until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the process")
