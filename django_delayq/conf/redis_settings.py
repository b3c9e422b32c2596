"""RedisConfig: how to connect to Redis, read from any form of DELAYQ['REDIS'].

The forms are a URL, the alias of a django-redis (or Django's own Redis) cache, a dict of connection parameters, or a
callable that returns one of these. Reading never connects, and no error shows a password.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import Validator

#: URL scheme -> the client's scheme for it.
_SCHEMES = {"redis": "redis", "rediss": "rediss", "unix": "unix", "valkey": "redis", "valkeys": "rediss"}
_ANY = Validator("anything", lambda value: True)
_NUMBER = Validator("a number", lambda value: not isinstance(value, bool) and str(value).isdecimal())
_PORT = Validator("a number up to 65,535", lambda value: _NUMBER.allows(value) and int(value) <= 65_535)
_TEXT = Validator("text", lambda value: isinstance(value, str))
_URL = Validator("a URL", lambda value: value is None or "://" in value)
_FILE = Validator(
    "the path of a file that this user can read",
    lambda value: value is None or (isinstance(value, str | os.PathLike) and os.access(value, os.R_OK)),
    shows_text=True,
)
_PARAMETERS: dict[str, Validator] = {
    **{"url": _URL, "host": _TEXT, "port": _PORT, "db": _NUMBER, "unix_socket_path": _TEXT},
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"), _FILE),
    **dict.fromkeys(("username", "password", "client_name", "max_connections", "credential_provider"), _ANY),
    **dict.fromkeys(("socket_keepalive", "socket_keepalive_options", "ssl", "ssl_password", "ssl_cert_reqs"), _ANY),
    **dict.fromkeys(("ssl_ca_path", "ssl_ca_data", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"), _ANY),
}
#: Parameters that exclude each other.
_EXCLUSIVE = (("url", "host"), ("url", "port"), ("url", "unix_socket_path"), ("host", "unix_socket_path"))
_CACHE_BACKENDS = ("django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache")
#: The name of the setting, unless an alias of TASKS has one of its own.
_NAME = "DELAYQ['REDIS']"
_FORMS = "Use a URL (redis://, rediss://, unix://, valkey://), a CACHES alias, a dict of parameters, or a callable."
_FILE_HINT = "Check the path and the permissions of the file for this user."


class SettingError(ValueError):
    """The REDIS setting is wrong; `hint` says what to write instead."""

    def __init__(self, message: str, hint: str = _FORMS) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """How to connect to Redis. Its repr shows the address and never a secret."""

    url: str | None = field(default=None, repr=False)
    #: Parameters of the client library's connection.
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Called at connect time; returns any form of the setting.
    factory: Callable[[], Any] | None = field(default=None, repr=False)
    #: The address that logs and pages show, without user and password.
    display_url: str = ""
    #: The name of the setting that errors show. Not compared: two settings may name the same server.
    setting: str = field(default=_NAME, compare=False)

    @classmethod
    def read(cls, value: Any, *, setting: str = _NAME) -> "RedisConfig":
        """Read any form of the setting. Raises `SettingError`."""
        if callable(value) and not isinstance(value, type):
            display_url = f"what {getattr(value, '__qualname__', 'a callable')}() returns"
            return cls(factory=value, display_url=display_url, setting=setting)
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
            # The scheme is not shown: if it was forgotten, a password may be in its place.
            raise SettingError(f"{setting} is a URL of an unknown scheme{did_you_mean(scheme, _SCHEMES)}.")
        if scheme == "unix" and not parts.path:
            raise SettingError(f"{setting} is a unix:// URL without the path of a socket.")
        database = parts.path.strip("/")
        if scheme != "unix" and database and not database.isdigit():
            # The path is not shown: it may be the rest of a password that contains a slash.
            raise SettingError(
                f"{setting} has a path that is not a number; the database must be a number (/ in a password is %2F)."
            )
        address = parts.path if scheme == "unix" else f"{host or 'localhost'}:{port or 6379}/{database or 0}"
        return cls(
            url=_SCHEMES[scheme] + url[len(parts.scheme) :],
            parameters=dict(parameters),
            display_url=f"{_SCHEMES[scheme]}://{address}",
            setting=setting,
        )

    @classmethod
    def _from_parameters(cls, given: Mapping[Any, Any], setting: str) -> "RedisConfig":
        for name, value in given.items():
            if name not in _PARAMETERS:
                raise SettingError(
                    f"{setting} has the unknown parameter {name!r:.80}{did_you_mean(name, _PARAMETERS)}.",
                    f"Known parameters: {', '.join(sorted(_PARAMETERS))}.",
                )
            try:
                _PARAMETERS[name](f"{setting}[{name!r}]", value)
            except ValueError as error:
                hint = _FILE_HINT if _PARAMETERS[name] is _FILE else _FORMS
                raise SettingError(f"{error}.", hint) from None
        url, parameters = given.get("url"), {name: value for name, value in given.items() if name != "url"}
        for first, second in _EXCLUSIVE:
            if given.get(first) is not None and second in given:
                raise SettingError(f"{setting} has both {first!r} and {second!r}.", "Give one of the two.")
        if url is not None:
            return cls._from_url(url, parameters, setting)
        server = given.get("unix_socket_path") or f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"
        return cls(parameters=parameters, display_url=f"{server}/{given.get('db', 0)}", setting=setting)

    @classmethod
    def _from_cache(cls, alias: str, setting: str) -> "RedisConfig":
        """Copy the settings of a cache, and do not use its pool: our connections need other timeouts and retries."""
        caches = getattr(settings, "CACHES", {})
        if alias not in caches and set(alias) & set(":@/"):
            # The text is not shown: it is a URL without its scheme, perhaps with a password.
            raise SettingError(f"{setting} is neither a URL with its scheme nor an alias of CACHES.")
        if alias not in caches:
            hint = did_you_mean(alias, caches)
            raise SettingError(f"{setting} names the cache {alias!r:.80}, which CACHES does not have{hint}.")
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
        parameters.update({name: kwargs[name] for name in sorted(_PARAMETERS.keys() - {"url"}) if name in kwargs})
        return cls._from_url(location, parameters, setting)
