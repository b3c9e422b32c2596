"""Trial: one measurement: a fresh server on TCP, a ledger, one system's producer and workers, all its own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.ledger import Ledger
from benchmarks.venvs import ROOT, python_of
from django_delayq.testing.local_redis import LocalRedisServer

#: Jobs run before anything is timed: connections are open, scripts loaded, code warm.
WARM = 100
#: Seconds after the first jobs ran in which the other processes come up, too.
SETTLE = 2.0
#: Seconds for a producer to end, which a slow one needs for a million jobs.
PATIENCE = 900


class Failed(Exception):
    """A system's process ended or did not do its part; the message has its last words."""


class Trial:
    """One system in one configuration, beside a server that nobody else uses."""

    def __init__(self, system: str, configuration: str, server: LocalRedisServer, folder: Path, jobs: int) -> None:
        self.system, self.ledger = system, Ledger(folder / "ledger", jobs + WARM)
        # One connection, so that a count of requests knows which is ours.
        self.client: Any = server.client(single_connection_client=True)
        self.watcher = server.client
        self._folder, self._python = folder, python_of(system)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "BENCH_URL": server.url,
            "BENCH_LEDGER": str(folder / "ledger"),
            "BENCH_CONFIGURATION": configuration,
        }

    def produce(self, do: str, **step: Any) -> dict[str, Any]:
        """Run one step of the producer in a process of its own and return its answer."""
        command = [self._python, "-m", "benchmarks.peers.produce", self.system, json.dumps({"do": do, **step})]
        try:
            done = subprocess.run(
                command, env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"the producer did not end within {PATIENCE} s") from error
        if done.returncode:
            raise Failed(f"the producer failed: {done.stderr.strip()[-500:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def serve(self, *, processes: int = 1, at_once: int | None = None, task: str = "noop") -> None:
        """Start workers and return once they have run the first jobs and had time to settle."""
        described = self.produce("describe", processes=processes, at_once=at_once)
        for command in described["commands"]:
            log = open(self._folder / f"log{len(self._processes)}", "wb")  # noqa: SIM115 (handed to the process)
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment | described["environment"],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            log.close()
        # A first job alone: some workers take only what comes after their start.
        time.sleep(SETTLE)
        self.produce("send", task=task, first=self.ledger.jobs - WARM, count=WARM, many=False)
        if not self.ledger.wait(self.ledger.jobs - WARM, WARM, seconds=60, alive=self.alive):
            raise Failed(f"the first jobs did not run: {self._words()}")
        time.sleep(SETTLE)

    def keep_account(self) -> Callable[[], float]:
        """Have workers add up their CPU time inside redis-py; return a function that reads it, in seconds."""
        path = self._folder / "account"
        path.write_bytes(bytes(8))
        self._environment["BENCH_ACCOUNT"] = str(path)
        return lambda: int.from_bytes(path.read_bytes(), "little") / 1e9

    def alive(self) -> None:
        """Raise `Failed` where a worker process has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise Failed(f"a worker ended with {process.returncode}: {self._words()}")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the workers by SIGSTOP meanwhile; on leaving they go on, warm and all at the same moment."""
        self._signal(signal.SIGSTOP)
        yield
        self._signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Return the worker processes with all their children."""
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents.setdefault(int(stat.read_text().rpartition(") ")[2].split()[1]), []).append(
                    int(stat.parent.name)
                )
        found, new = [], [process.pid for process in self._processes]
        while new:
            found += new
            new = [child for pid in new for child in parents.get(pid, [])]
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU time of the workers so far, ended children included."""
        seconds = 0.0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                seconds += sum(int(field) for field in fields[13:15]) / os.sysconf("SC_CLK_TCK")
                # Its own by the clock of clock_getcpuclockid(3): an idle one takes less than a tick of 10 ms.
                seconds += time.clock_gettime(~pid << 3 | 2)
        return seconds

    def memory_mib(self) -> float:
        """Return the resident memory of the workers; shared pages count once for each process."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def redis_seconds(self) -> float:
        """Return the CPU time of the server so far."""
        usage = self.client.info("cpu")
        return float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])

    def end(self) -> None:
        """Kill the workers and their children."""
        pids = self.pids()
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        # Children in groups of their own are met by their ids; all others are gone by now.
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, what: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, what)

    def _words(self) -> str:
        return " ".join(path.read_text(errors="replace").strip()[-300:] for path in sorted(self._folder.glob("log*")))


@contextlib.contextmanager
def trial(system: str, configuration: str, *, jobs: int) -> Iterator[Trial]:
    """Set a measurement of so many jobs up, and take everything down after it."""
    # The ledger has to be memory; a file on a disk would be written back while it is measured.
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="delayq-bench-", dir=shared))
    try:
        with LocalRedisServer(port=0) as server:
            made = Trial(system, configuration, server, folder, jobs)
            try:
                yield made
            finally:
                made.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def about(system: str) -> dict[str, Any]:
    """Return what a system's adapter says of itself."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "BENCH_URL": "redis://127.0.0.1:1/0"}
    environment |= {"BENCH_LEDGER": "/nonexistent/ledger", "BENCH_CONFIGURATION": "default"}
    done = subprocess.run(
        [python_of(system), "-m", "benchmarks.peers.produce", system, '{"do": "about"}'],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Failed(f"{system}: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
