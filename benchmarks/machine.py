"""Facts about the machine of a run."""

import os
import platform
import select
import statistics
import time
from pathlib import Path
from typing import Any

from django_delayq.testing.local_redis import find_server, version_of


def facts() -> dict[str, Any]:
    """Return what readers need to compare the figures with those of another machine."""
    server = find_server()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "server": f"{server.name} {'.'.join(str(part) for part in version_of(server))}",
        "load_before": round(os.getloadavg()[0], 2),
        "timer_ms": round(_timer_ms(), 3),
        "pinned": _pinned(),
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def _pinned() -> list[int]:
    """Return the CPUs to which this process and its children are pinned; empty if they may use all."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cpus = sorted(os.sched_getaffinity(0))
    return cpus if len(cpus) < (os.cpu_count() or 1) else []


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _timer_ms() -> float:
    """Return how late a wait of 5 ms ends on this machine: no system can start jobs more punctually."""
    late = []
    for _ in range(200):
        until = time.monotonic() + 0.005
        select.select([], [], [], until - time.monotonic())
        late.append(time.monotonic() - until)
    return 1_000 * statistics.median(late)
