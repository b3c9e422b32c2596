"""LocalFolder: where a private Redis server lives, owned by the process that started it.

The owner holds a lock on the folder. The kernel drops it whatever the owner's end, so an unlocked folder is
an orphan and its server too; a stored pid could by now be somebody else's. (Forks of the owner keep the lock
as well; systemd, when it cleans /tmp, spares locked folders.)
"""

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

PREFIX = "delayq-redis-"
#: Written by the server itself, so that an owner killed right after the start leaves one as well.
PID_FILE = "server.pid"
SOCKET = "redis.sock"
#: sockaddr_un holds 104 bytes on macOS, 108 on Linux.
SOCKET_PATH_LIMIT = 100
#: Seconds an unlocked folder without pid file is left alone: its owner may be about to lock it, or its server
#: to write the file.
NEWBORN = 60.0
#: Seconds given to a killed process to disappear.
END_LIMIT = 10.0


class LocalFolder:
    """One folder, mode 0700, with a path short enough for a unix socket."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls) -> Self:
        """Make a folder and lock it for this process."""
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base()))
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(path, lock)

    def remove(self) -> None:
        """Remove the folder with all it holds, and the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_orphans() -> list[Path]:
    """End the servers whose owners died, and remove their folders. Returns these. Two at once are safe."""
    removed = []
    for path in (found for base in _bases() for found in base.glob(PREFIX + "*")):
        with suppress(OSError):  # locked by its owner or by another start, or just removed by that
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _end_server(path, age=time.time() - status.st_mtime):
                    shutil.rmtree(path)
                    removed.append(path)
            finally:
                os.close(lock)
    return removed


def _end_server(path: Path, *, age: float) -> bool:
    """Kill the server of an unlocked folder; tell whether the folder is now without one."""
    try:
        pid = int((path / PID_FILE).read_text())
    except (OSError, ValueError):
        return age > NEWBORN
    give_up = time.monotonic() + END_LIMIT
    # Only a process started for this very folder: the server may be long gone and its pid a stranger's.
    while pid > 1 and f"{path}/" in _command_of(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            return False
        time.sleep(0.002)
    return True


def _command_of(pid: int) -> str:
    """Return a process's command line; empty once it has ended, also while nobody has waited for it."""
    if os.path.exists("/proc/self/cmdline"):
        with suppress(OSError):
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
        return ""
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(ps, capture_output=True, text=True, check=False).stdout


def _bases() -> list[Path]:
    # Resolved, because the command line of an orphan must show its folder in the same spelling.
    return list(dict.fromkeys(Path(base).resolve() for base in (tempfile.gettempdir(), "/tmp")))


def _base() -> Path:
    rest = len(f"/{PREFIX}12345678/{SOCKET}")
    fitting = [base for base in _bases() if len(os.fsencode(base)) + rest <= SOCKET_PATH_LIMIT]
    return fitting[0] if fitting else Path("/tmp")
