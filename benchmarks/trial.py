"""Trial: one measurement, with its own server on TCP, run record, producer and workers of one system."""

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

from benchmarks.run_record import RunRecord
from benchmarks.venvs import ROOT, python_of
from django_delayq.testing.local_redis import LocalRedisServer

#: Jobs that run before the measurement: they open connections, load scripts and warm the code.
WARMUP_JOBS = 100
#: Seconds after the first jobs in which the system's other processes start.
SETTLE = 2.0
#: Seconds a producer may take; a slow one needs them for a million jobs.
PRODUCER_LIMIT = 900


class TrialFailed(Exception):
    """A process of the system ended or did not run the jobs. The message has the end of its log."""


class Trial:
    """One system in one configuration, on a server of its own."""

    def __init__(
        self, adapter: str, configuration: str, server: LocalRedisServer, folder: Path, jobs: int, **environment: str
    ) -> None:
        self.system = adapter.rpartition(".")[2]
        self._adapter, self.runs = adapter, RunRecord(folder / "record", jobs + WARMUP_JOBS)
        # A single connection, so that a count of requests can exclude it.
        self.client: Any = server.client(single_connection_client=True)
        self.new_client = server.client
        self._folder, self._python = folder, python_of(self.system)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "BENCH_URL": server.url,
            "BENCH_RUN_RECORD": str(folder / "record"),
            "BENCH_CONFIGURATION": configuration,
            **environment,
        }

    def run_producer(self, step: str, **arguments: Any) -> dict[str, Any]:
        """Run one step of the producer in a process of its own. Returns the result of the step."""
        command = [
            self._python,
            "-m",
            "benchmarks.peer_runtime.produce",
            self._adapter,
            json.dumps({"step": step, **arguments}),
        ]
        try:
            done = subprocess.run(
                command, env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=PRODUCER_LIMIT
            )
        except subprocess.TimeoutExpired as error:
            raise TrialFailed(f"the producer did not end within {PRODUCER_LIMIT} s") from error
        if done.returncode:
            raise TrialFailed(f"the producer failed: {done.stderr.strip()[-500:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    def start_workers(self, *, processes: int = 1, concurrency: int | None = None, task: str = "noop") -> None:
        """Start the workers. Returns when they have run the first jobs and had `SETTLE` seconds."""
        workers = self.run_producer("worker_commands", processes=processes, concurrency=concurrency)
        for command in workers["commands"]:
            log = open(self._folder / f"log{len(self._processes)}", "wb")  # noqa: SIM115 (handed to the process)
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment | workers["environment"],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            log.close()
        # Send jobs only after the start, because some workers do not run older ones.
        time.sleep(SETTLE)
        self.run_producer("send", task=task, first=self.runs.jobs - WARMUP_JOBS, count=WARMUP_JOBS, many=False)
        if not self.runs.wait(self.runs.jobs - WARMUP_JOBS, WARMUP_JOBS, seconds=60, check_alive=self.check_workers):
            raise TrialFailed(f"the first jobs did not run: {self._log_ends()}")
        time.sleep(SETTLE)

    def drain(self, task: str, jobs: int, *, first: int = 0, limit: float) -> dict[str, float]:
        """Enqueue jobs while the workers are suspended, and let them run for at most `limit` seconds.

        Raises `InvalidRun` if one ran twice or was lost, and `TrialFailed` if none ran.
        """
        with self.paused_workers():
            self.run_producer("send", task=task, first=first, count=jobs, many=True)
            redis, workers = self.redis_seconds(), self.cpu_seconds()
            began = time.perf_counter()
        all_ran = self.runs.wait(first, jobs, seconds=limit, check_alive=self.check_workers)
        took, ran = time.perf_counter() - began, self.runs.count_ran(first, jobs)
        redis, workers = self.redis_seconds() - redis, self.cpu_seconds() - workers
        self.runs.check(first, jobs, complete=all_ran)
        if not ran:
            raise TrialFailed("no job ran")
        return {"rate": ran / took, "ran": ran, "redis_us": 1e6 * redis / ran, "workers_us": 1e6 * workers / ran}

    def record_client_time(self) -> Callable[[], float]:
        """Make workers record their CPU time inside redis-py. Returns a function that reads the seconds."""
        path = self._folder / "account"
        path.write_bytes(bytes(8))
        self._environment["BENCH_ACCOUNT"] = str(path)
        return lambda: int.from_bytes(path.read_bytes(), "little") / 1e9

    def check_workers(self) -> None:
        """Raise `TrialFailed` if a worker process has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise TrialFailed(f"a worker ended with {process.returncode}: {self._log_ends()}")

    @contextlib.contextmanager
    def paused_workers(self) -> Iterator[None]:
        """Suspend the workers by SIGSTOP during the block, so that all continue warm and at the same moment."""
        self._signal(signal.SIGSTOP)
        yield
        self._signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Return the ids of the worker processes and of all their children."""
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
        """Return the CPU time of the workers so far, with that of children that ended."""
        seconds = 0.0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                seconds += sum(int(field) for field in fields[13:15]) / os.sysconf("SC_CLK_TCK")
                # The process's own time by clock_getcpuclockid(3): an idle one uses less than a tick of 10 ms.
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

    def stop(self) -> None:
        """Kill the workers and their children."""
        pids = self.pids()
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        # Children in process groups of their own are still alive.
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _log_ends(self) -> str:
        return " ".join(path.read_text(errors="replace").strip()[-300:] for path in sorted(self._folder.glob("log*")))


@contextlib.contextmanager
def running_trial(
    system: str, configuration: str, *, jobs: int, adapters: str = "benchmarks.peers", **environment: str
) -> Iterator[Trial]:
    """Start a measurement of so many jobs, and stop all its processes afterwards.

    `adapters` is the package of the adapters, and the environment is added to that of the system's processes.
    """
    # The run record must be in memory: the system would write a file back to the disk during the measurement.
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="delayq-bench-", dir=shared))
    try:
        with LocalRedisServer(port=0) as server:
            trial = Trial(f"{adapters}.{system}", configuration, server, folder, jobs, **environment)
            try:
                yield trial
            finally:
                trial.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def describe_system(system: str) -> dict[str, Any]:
    """Return the description in a system's adapter."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "BENCH_URL": "redis://127.0.0.1:1/0"}
    environment |= {"BENCH_RUN_RECORD": "/nonexistent/record", "BENCH_CONFIGURATION": "default"}
    done = subprocess.run(
        [
            python_of(system),
            "-m",
            "benchmarks.peer_runtime.produce",
            f"benchmarks.peers.{system}",
            '{"step": "describe"}',
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise TrialFailed(f"{system}: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
