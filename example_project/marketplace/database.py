"""Parse DATABASE_URL into an entry of DATABASES: sqlite, postgres or mysql."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
}

#: A web process, a dispatcher and a worker write to the same file. IMMEDIATE takes the write lock at the start of a
#: transaction, where SQLite waits for it; later in a transaction, SQLite fails at once with "database is locked".
SQLITE_OPTIONS = {
    "timeout": 20,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}


def parse_database_url(url: str) -> dict[str, Any]:
    """Parse `scheme://user:password@host:port/name?option=value`; `sqlite:///relative` or `sqlite:////absolute`."""
    parts = urlsplit(url)
    if parts.scheme not in ENGINES:
        raise ValueError(f"DATABASE_URL: unknown scheme {parts.scheme!r}, expected one of {', '.join(ENGINES)}")
    database: dict[str, Any] = {"ENGINE": ENGINES[parts.scheme], "NAME": unquote(parts.path[1:])}
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    if parts.scheme == "sqlite":
        options = SQLITE_OPTIONS | options
    else:
        database |= {
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "",
            "PORT": str(parts.port or ""),
        }
    return database | {"OPTIONS": options}
