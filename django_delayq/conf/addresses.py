"""Addresses: host and port of each server in a setting that names several."""

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

Address = tuple[str, int]


def read_addresses(given: Any, *, port: int) -> tuple[Address, ...]:
    """Return the addresses of a list; each is "host:port", "host" or ("host", port). Raises ValueError, TypeError."""
    if isinstance(given, str) or not given:
        raise TypeError
    return tuple(read_address(each, port=port) for each in given)


def read_address(given: Any, *, port: int) -> Address:
    """Return the address of "host:port", "host" or ("host", port); `port` is the default. Raises ValueError."""
    if isinstance(given, str):
        parts = urlsplit(f"//{given}")
        host, number = parts.hostname, parts.port
        if parts.netloc != given or "@" in given:
            raise ValueError
    else:
        host, number = given
        # Text from an environment variable.
        number = int(number) if isinstance(number, str) and number.isdecimal() else number
    if not (isinstance(host, str) and host) or isinstance(number, bool) or not isinstance(number, int | None):
        raise ValueError
    if number is not None and not 0 < number < 65_536:
        raise ValueError
    return host, number or port


def addresses_text(addresses: Iterable[Address]) -> str:
    """Return addresses for people."""
    return ",".join(f"{host}:{port}" for host, port in addresses)


def split_hosts(url: str) -> tuple[str, Sequence[str]]:
    """Return a URL of several servers, separated by commas, as a URL of the first, and the others."""
    scheme, _, rest = url.partition("://")
    # A query has paths of files.
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    # A password may contain a comma, but no @ that is not quoted.
    user, at, hosts = authority.rpartition("@")
    first, *others = hosts.split(",")
    return f"{scheme}://{user}{at}{first}{rest[len(authority) :]}", others
