"""RedisConfig: how to connect to Redis, read from any form of DELAYQ['REDIS'].

The forms are a URL, the alias of a django-redis (or Django's own Redis) cache, a dict of connection parameters, or a
callable that returns one of these. A URL or a dict may name one server or a cluster, a dict also Sentinels. Reading
never connects, and no error shows a password.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.module_loading import import_string

from django_delayq.conf.addresses import Address, addresses_text, read_address, read_addresses, split_hosts
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import Validator
from django_delayq.exceptions import see

#: The backends of caches that are Redis.
DJANGO_REDIS, DJANGO = "django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"
#: URL scheme -> the client's scheme for it.
_SCHEMES = {"redis": "redis", "rediss": "rediss", "unix": "unix", "valkey": "redis", "valkeys": "rediss"}
#: What follows the scheme of a URL that names nodes of a cluster.
_CLUSTER = "+cluster"
_URL_SCHEMES = (*_SCHEMES, *(f"{scheme}{_CLUSTER}" for scheme in _SCHEMES if scheme != "unix"))
_PORTS = {"cluster": 6_379, "sentinels": 26_379}
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
_CALLABLE = Validator("a function that takes and returns an address (host, port)", callable)
_NAMED = Validator("the name of the primary that the Sentinels watch", lambda value: isinstance(value, str) and value)
_MAPPING = Validator("a dict of parameters of the connections to Sentinels", lambda value: isinstance(value, Mapping))


def _addresses_of(name: str) -> Validator:
    return Validator(
        'a list of addresses, each "host:port" or ("host", port)',
        lambda value: read_addresses(value, port=_PORTS[name]),
        convert=lambda value: read_addresses(value, port=_PORTS[name]),
    )


_PARAMETERS: dict[str, Validator] = {
    **{"url": _URL, "host": _TEXT, "port": _PORT, "db": _NUMBER, "unix_socket_path": _TEXT},
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"), _FILE),
    **dict.fromkeys(("username", "password", "client_name", "max_connections", "credential_provider"), _ANY),
    **dict.fromkeys(("socket_keepalive", "socket_keepalive_options", "ssl", "ssl_password", "ssl_cert_reqs"), _ANY),
    **dict.fromkeys(("ssl_ca_path", "ssl_ca_data", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"), _ANY),
    **{"cluster": _addresses_of("cluster"), "address_remap": _CALLABLE},
    **{"sentinels": _addresses_of("sentinels"), "service": _NAMED, "sentinel_kwargs": _MAPPING},
}
#: Parameters that say where Redis is; only host and port go together.
_PLACES = ("url", "host", "port", "unix_socket_path", "cluster", "sentinels")
#: Parameter -> one without which it has no meaning.
_REQUIRED_BY = {"sentinels": "service", "service": "sentinels", "sentinel_kwargs": "sentinels"}
#: Parameters that are not those of a connection.
_OF_TOPOLOGY = frozenset({"url", "cluster", "address_remap", "sentinels", "service", "sentinel_kwargs"})
#: Backends of caches -> what separates several servers in their LOCATION.
_CACHE_BACKENDS = {DJANGO_REDIS: ",", DJANGO: "[,;]"}
#: django-redis's own connection factory.
_FACTORY = "django_redis.pool.ConnectionFactory"
#: The name of the setting, unless an alias of TASKS has one of its own.
_NAME = "DELAYQ['REDIS']"
_FORMS = (
    "Use a URL (redis://, rediss://, unix://, valkey://, redis+cluster://), a CACHES alias, a dict of parameters, or a "
    "callable."
)
_FILE_HINT = "Check the path and the permissions of the file for this user."


class SettingError(ValueError):
    """The REDIS setting is wrong; `hint` says what to write instead, and where to read more."""

    def __init__(self, message: str, hint: str = _FORMS) -> None:
        super().__init__(message)
        self.hint = f"{hint} {see('troubleshooting#a-setting-is-wrong')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """An alias of CACHES that is Redis, as the project wrote it. Its repr never shows a secret."""

    alias: str
    #: The path of its class, and the one of `DJANGO_REDIS` and `DJANGO` that this is, or is derived from.
    backend: str
    kind: str
    #: The URLs of its servers; the first one has the jobs.
    locations: tuple[str, ...] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    @property
    def has_several_servers(self) -> bool:
        """Whether its LOCATIONs name more than one server, or service of Sentinels."""
        return len({urlsplit(each)._replace(query="") for each in self.locations}) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """How to connect to Redis. Its repr shows the address and never a secret."""

    url: str | None = field(default=None, repr=False)
    #: Parameters of the client library's connection.
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Nodes of a cluster; it names the others.
    nodes: tuple[Address, ...] = ()
    #: Turns an address that a node of the cluster announces into one that this process reaches.
    address_remap: Callable[[Address], Address] | None = field(default=None, repr=False)
    #: Sentinels, the name of the primary that they watch, and the parameters of the connections to them.
    sentinels: tuple[Address, ...] = ()
    service: str = ""
    sentinel_parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: The cache whose connections are to be copied.
    cache: CacheConfig | None = None
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
    def _from_url(cls, url: str, parameters: Mapping[str, Any], setting: str, **topology: Any) -> "RedisConfig":
        scheme = url.partition("://")[0].lower()
        is_cluster = scheme.endswith(_CLUSTER)
        if scheme not in _URL_SCHEMES:
            # The scheme is not shown: if it was forgotten, a password may be in its place.
            raise SettingError(f"{setting} is a URL of an unknown scheme{did_you_mean(scheme, _URL_SCHEMES)}.")
        url, others = split_hosts(url) if is_cluster else (url, ())
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "localhost", parts.port or _PORTS["cluster"]
            nodes = ((host, port), *(read_address(each, port=_PORTS["cluster"]) for each in others))
        except ValueError:
            raise SettingError(f"{setting} is not a well-formed URL.") from None
        if scheme == "unix" and not parts.path:
            raise SettingError(f"{setting} is a unix:// URL without the path of a socket.")
        database = parts.path.strip("/")
        if scheme != "unix" and database and not database.isdigit():
            # The path is not shown: it may be the rest of a password that contains a slash.
            raise SettingError(
                f"{setting} has a path that is not a number; the database must be a number (/ in a password is %2F)."
            )
        kind = _SCHEMES[scheme.removesuffix(_CLUSTER)]
        if is_cluster:
            _refuse_database(database or parameters.get("db"), setting)
            topology |= {"nodes": nodes, "display_url": f"{kind}{_CLUSTER}://{addresses_text(nodes)}"}
        elif "address_remap" in topology:
            raise SettingError(f"{setting} has 'address_remap', but names no cluster.", "Remove it.")
        else:
            address = parts.path if scheme == "unix" else f"{host}:{port}/{database or parameters.get('db') or 0}"
            topology["display_url"] = f"{kind}://{address}"
        url = kind + url[len(parts.scheme) :]
        return cls(url=url, parameters=dict(parameters), setting=setting, **topology)

    @classmethod
    def _from_parameters(cls, given: Mapping[Any, Any], setting: str) -> "RedisConfig":
        given = _checked(given, setting)
        parameters = {name: value for name, value in given.items() if name not in _OF_TOPOLOGY}
        if given.get("url") is not None:
            remap = {name: given[name] for name in ("address_remap",) if name in given}
            return cls._from_url(given["url"], parameters, setting, **remap)
        topology: dict[str, Any] = {}
        if nodes := given.get("cluster"):
            _refuse_database(given.get("db"), setting)
            topology = {"nodes": nodes, "address_remap": given.get("address_remap")}
            shown = f"redis{_CLUSTER}://{addresses_text(nodes)}"
        elif sentinels := given.get("sentinels"):
            topology = {"sentinels": sentinels, "service": given["service"]}
            topology["sentinel_parameters"] = given.get("sentinel_kwargs", {})
            shown = _sentinels_text(given["service"], given.get("db", 0), sentinels)
        else:
            server = given.get("unix_socket_path") or f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"
            shown = f"{server}/{given.get('db', 0)}"
        return cls(parameters=parameters, display_url=shown, setting=setting, **topology)

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
        cache, place = caches[alias], f"CACHES[{alias!r}]"
        if (kind := _kind_of(backend := cache.get("BACKEND"))) is None:
            raise SettingError(
                f"{setting} names the cache {alias!r}, whose backend {backend!r} is not Redis.",
                "Use a cache of django_redis.cache.RedisCache, or give a URL.",
            )
        location, options = cache.get("LOCATION"), dict(cache.get("OPTIONS") or {})
        if isinstance(location, str):
            location = re.split(_CACHE_BACKENDS[kind], location)
        locations = tuple(location) if isinstance(location, list | tuple | set) else ()
        if not locations or not all(isinstance(each, str) and "://" in each for each in locations):
            raise SettingError(f"{place}['LOCATION'] is not a Redis URL.")
        pool_options = options
        if kind == DJANGO_REDIS:
            pool_options = options.get("CONNECTION_POOL_KWARGS") or {}
            # Here, so that a changed setting counts.
            factory = getattr(settings, "DJANGO_REDIS_CONNECTION_FACTORY", _FACTORY)
            options["CONNECTION_FACTORY"] = options.get("CONNECTION_FACTORY") or factory
        parameters = {name: pool_options[name] for name in ("db", "max_connections") if name in pool_options}
        found = [cls._from_url(each.strip(), parameters, f"{place}['LOCATION']") for each in locations]
        if found[0].nodes:
            raise SettingError(f"{place}['LOCATION'] names a cluster.", f"Give {setting} this URL itself.")
        shown = found[0].display_url
        if "SENTINELS" in options:
            sentinels = _read(_PARAMETERS["sentinels"], f"{place}['OPTIONS']['SENTINELS']", options["SENTINELS"])
            url = urlsplit(locations[0])
            shown = _sentinels_text(url.hostname or "", url.path.strip("/") or parameters.get("db", 0), sentinels)
        urls = tuple(each.url for each in found if each.url)
        described = CacheConfig(alias=alias, backend=backend, kind=kind, locations=urls, options=options)
        return replace(found[0], url=None, cache=described, display_url=shown, setting=setting)


def _kind_of(backend: Any) -> str | None:
    """Return the one of `_CACHE_BACKENDS` that the backend of a cache is, or is derived from."""
    if backend in _CACHE_BACKENDS or not isinstance(backend, str):
        return backend if isinstance(backend, str) else None
    try:
        bases = getattr(import_string(backend), "__mro__", ())
    except ImportError:
        # Django reports it at the first use of the cache.
        return None
    paths = (f"{base.__module__}.{base.__qualname__}" for base in bases)
    return next((path for path in paths if path in _CACHE_BACKENDS), None)


def _sentinels_text(service: str, database: Any, sentinels: Iterable[Address]) -> str:
    return f"{service}/{database} (Sentinels {addresses_text(sentinels)})"


def _checked(given: Mapping[Any, Any], setting: str) -> dict[str, Any]:
    """Return a dict of parameters, each converted. Raises `SettingError`."""
    checked = dict[str, Any]()
    for name, value in given.items():
        if name not in _PARAMETERS:
            raise SettingError(
                f"{setting} has the unknown parameter {name!r:.80}{did_you_mean(name, _PARAMETERS)}.",
                f"Known parameters: {', '.join(sorted(_PARAMETERS))}.",
            )
        checked[name] = _read(_PARAMETERS[name], f"{setting}[{name!r}]", value)
        if (other := _REQUIRED_BY.get(name)) and other not in given:
            raise SettingError(f"{setting} has {name!r} without {other!r}.", f"Give {other!r}, too.")
    places = [name for name in _PLACES if checked.get(name) is not None]
    if len(places) > 1 and places != ["host", "port"]:
        raise SettingError(f"{setting} has both {places[0]!r} and {places[1]!r}.", "Give one of the two.")
    if "address_remap" in checked and not {"url", "cluster"}.intersection(places):
        raise SettingError(f"{setting} has 'address_remap', but names no cluster.", "Remove it.")
    return checked


def check_files(parameters: Mapping[str, Any], setting: str) -> None:
    """Raise `SettingError` if a file with a key or certificates is not readable, wherever its path came from."""
    for name, validator in _PARAMETERS.items():
        if validator is _FILE and name in parameters:
            _read(validator, f"{setting}[{name!r}]", parameters[name])


def _read(validator: Validator, place: str, value: Any) -> Any:
    try:
        return validator(place, value)
    except ValueError as error:
        raise SettingError(f"{error}.", _FILE_HINT if validator is _FILE else _FORMS) from None


def _refuse_database(database: Any, setting: str) -> None:
    if int(database or 0):
        raise SettingError(f"{setting} names database {database} of a cluster.", "A cluster has database 0 only.")
