"""Memory: how much of it this process has in RAM."""

import os
from pathlib import Path


def rss_bytes() -> int:
    """Return the resident set size in bytes, 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
