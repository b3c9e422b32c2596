"""RedisConfig: the DELAYQ["REDIS"] setting, in any of its forms, as one description of how to connect.

A URL, the alias of a django-redis (or Django's own Redis) cache, keyword parameters, or a callable that returns one of
these. Never connects, never shows a password.
"""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

#: URL schemes; Valkey's are Redis's under another name.
_SCHEMES = {"redis": "redis", "rediss": "rediss", "unix": "unix", "valkey": "redis", "valkeys": "rediss"}
_PARAMETERS = frozenset(
    ("url", "host", "port", "db", "username", "password", "unix_socket_path", "client_name")
    + ("socket_keepalive", "socket_keepalive_options", "max_connections", "credential_provider", "ssl")
    + ("ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data")
    + ("ssl_check_hostname", "ssl_min_version", "ssl_ciphers")
)
_CERTIFICATES = ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs")
_CACHE_BACKENDS = ("django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache")
#: What the setting is called, but for an alias of TASKS that has one of its own.
_NAME = "DELAYQ['REDIS']"
_FORMS = "Use a URL (redis://, rediss://, unix://, valkey://), a CACHES alias, a dict of parameters, or a callable."


class SettingError(ValueError):
    """The REDIS setting is wrong; `hint` says what to do."""

    def __init__(self, message: str, hint: str = _FORMS) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """How to connect to Redis. Its repr tells the place and never a secret."""

    url: str | None = field(default=None, repr=False)
    #: Parameters of the client library's connection.
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Called at connect time; returns any form of the setting.
    factory: Callable[[], Any] | None = field(default=None, repr=False)
    #: Where it leads, for people: no user, no password.
    display_url: str = ""
    #: What it was read from, for people; two that lead to one server are the same.
    setting: str = field(default=_NAME, compare=False)

    @classmethod
    def read(cls, value: Any, *, setting: str = _NAME) -> "RedisConfig":
        """Read any form of the setting. Raises `SettingError`."""
        if callable(value) and not isinstance(value, type):
            place = f"what {getattr(value, '__qualname__', 'a callable')}() returns"
            return cls(factory=value, display_url=place, setting=setting)
        if isinstance(value, Mapping):
            return cls._from_parameters(value, setting)
        if isinstance(value, str) and value:
            return cls._from_url(value, {}, setting) if "://" in value else cls._from_cache(value, setting)
        raise SettingError(f"{setting} must be a URL, alias, dict or callable, got {type(value).__name__}.")

    @classmethod
    def _from_url(cls, url: str, parameters: Mapping[str, Any], setting: str) -> "RedisConfig":
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError:
            raise SettingError(f"{setting} is not a well-formed URL.") from None
        if scheme not in _SCHEMES:
            close = difflib.get_close_matches(scheme, _SCHEMES, n=1)
            meant = f" (did you mean {close[0]}://?)" if close else ""
            # Not shown: where the scheme was forgotten, a password may stand in its place.
            raise SettingError(f"{setting} is a URL of an unknown scheme{meant}.")
        if scheme == "unix" and not parts.path:
            raise SettingError(f"{setting} is a unix:// URL without the path of a socket.")
        database = parts.path.strip("/")
        if scheme != "unix" and database and not database.isdigit():
            # Not shown: what a password with a slash in it leaves behind looks like a database.
            raise SettingError(
                f"{setting} has a path that is no number; the database must be a number (/ in a password is %2F)."
            )
        place = parts.path if scheme == "unix" else f"{host or 'localhost'}:{port or 6379}/{database or 0}"
        return cls(
            url=_SCHEMES[scheme] + url[len(parts.scheme) :],
            parameters=dict(parameters),
            display_url=f"{_SCHEMES[scheme]}://{place}",
            setting=setting,
        )

    @classmethod
    def _from_parameters(cls, given: Mapping[Any, Any], setting: str) -> "RedisConfig":
        for name in given:
            if name not in _PARAMETERS:
                close = difflib.get_close_matches(str(name).lower(), _PARAMETERS, n=1)
                meant = f" (did you mean {close[0]!r}?)" if close else ""
                hint = f"Known parameters: {', '.join(sorted(_PARAMETERS))}."
                raise SettingError(f"{setting} has the unknown parameter {name!r:.80}{meant}.", hint)
        for name in ("port", "db"):
            number = given.get(name, 0)
            if isinstance(number, bool) or not str(number).isdecimal() or (name == "port" and int(number) > 65_535):
                raise SettingError(f"{setting}[{name!r}] must be a number, got {type(number).__name__}.")
        for name in ("host", "unix_socket_path"):
            if name in given and not isinstance(given[name], str):
                raise SettingError(f"{setting}[{name!r}] must be text, got {type(given[name]).__name__}.")
        for name in _CERTIFICATES:
            path = given.get(name)
            if path is not None and not (isinstance(path, (str, os.PathLike)) and os.access(path, os.R_OK)):
                raise SettingError(
                    f"{setting}[{name!r}] is not a readable file: {path!r:.200}.",
                    "Check the path and the permissions of the file for this user.",
                )
        parameters = {name: value for name, value in given.items() if name != "url"}
        url = given.get("url")
        if url is None:
            if "unix_socket_path" in given and "host" in given:
                raise SettingError(f"{setting} has both 'host' and 'unix_socket_path'.", "Give one of the two.")
            where = given.get("unix_socket_path") or f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"
            return cls(parameters=parameters, display_url=f"{where}/{given.get('db', 0)}", setting=setting)
        both = {"host", "port", "unix_socket_path"} & set(given)
        if both:
            raise SettingError(f"{setting} has both 'url' and {min(both)!r}.", "Give one of the two.")
        if not isinstance(url, str) or "://" not in url:
            raise SettingError(f"{setting}['url'] is not a URL.")
        return cls._from_url(url, parameters, setting)

    @classmethod
    def _from_cache(cls, alias: str, setting: str) -> "RedisConfig":
        """Take over the description of a cache, never its live pool: ours needs timeouts and retries of its own."""
        caches = getattr(settings, "CACHES", {})
        if alias not in caches and set(alias) & set(":@/"):
            # Not shown: a URL without its scheme, perhaps with a password.
            raise SettingError(f"{setting} is neither a URL with its scheme nor an alias of CACHES.")
        if alias not in caches:
            close = difflib.get_close_matches(alias, caches, n=1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            raise SettingError(f"{setting} names the cache {alias!r:.80}, which CACHES does not have{meant}.")
        cache = caches[alias]
        if cache.get("BACKEND") not in _CACHE_BACKENDS:
            raise SettingError(
                f"{setting} names the cache {alias!r}, whose backend {cache.get('BACKEND')!r} is not Redis.",
                "Use a cache of django_redis.cache.RedisCache, or give a URL.",
            )
        location, options = cache.get("LOCATION"), cache.get("OPTIONS", {})
        if isinstance(location, (list, tuple)):
            location = location[0] if location else None
        elif isinstance(location, str):
            location = location.split(",")[0].strip()
        if not isinstance(location, str) or "://" not in location:
            raise SettingError(f"CACHES[{alias!r}]['LOCATION'] is not a Redis URL.")
        parameters = {name.lower(): options[name] for name in ("USERNAME", "PASSWORD") if options.get(name) is not None}
        kwargs = {**options, **options.get("CONNECTION_POOL_KWARGS", {})}
        parameters.update({name: kwargs[name] for name in sorted(_PARAMETERS - {"url"}) if name in kwargs})
        return cls._from_url(location, parameters, setting)
