"""Resident: how much memory this process has in RAM."""

import os
from pathlib import Path


def rss_bytes() -> int:
    """Return the bytes; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
