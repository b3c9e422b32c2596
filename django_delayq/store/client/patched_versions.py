"""Patched versions: the first release of each line of Redis and Valkey without the known memory bugs of what we use.

We run Lua and wait in blocking commands, and the pattern bug lies open to every user that may log in. What is counted:

- Lua: CVE-2024-31449, CVE-2024-46981, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819, CVE-2025-49844, CVE-2026-23631;
- patterns: CVE-2024-31228;
- blocking commands: CVE-2026-23479, and for Redis the use after free in the list of blocked clients (August 2026).

Bugs in commands that no role may run (RESTORE, streams, HyperLogLog, modules) are not.
"""

import re

#: Line -> the first patch release with all these fixes; None: none has them. Nothing is known of newer lines.
_PATCHED: dict[str, dict[tuple[int, int], int | None]] = {
    "redis": {
        (6, 2): 20,
        (7, 0): None,
        (7, 2): 16,
        (7, 4): 11,
        (8, 0): None,
        (8, 2): 9,
        (8, 4): 6,
        (8, 6): 6,
        (8, 8): 2,
    },
    "valkey": {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4, (9, 1): 0},
}
_NAMES = {"redis": "Redis", "valkey": "Valkey"}
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def security_warning(server: str, version: str) -> str:
    """Return one sentence where this release lacks security fixes, else nothing; also for one that is not known.

    `server` is "redis" or "valkey", `version` its own (INFO: `valkey_version` where it is told, else `redis_version`).
    """
    lines, found = _PATCHED.get(server.lower()), _VERSION.match(version)
    if lines is None or found is None:
        return ""
    major, minor, patch = map(int, found.groups())
    name, fixed = _NAMES[server.lower()], lines.get((major, minor), 0)
    if fixed is not None and patch >= fixed and (major, minor) >= min(lines):
        return ""
    ends = [f"{line[0]}.{line[1]}.{number}" for line, number in lines.items() if number is not None]
    first = f"{major}.{minor}.{fixed}" if fixed else f"one of {', '.join(ends)}"
    return (
        f"{name} {major}.{minor}.{patch} has known memory bugs in Lua, patterns or blocking commands; "
        f"update to {first} or later, unless your distribution has patched its package."
    )
