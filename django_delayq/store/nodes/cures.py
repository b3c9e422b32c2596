"""Cures: what helps against an error of Redis or of the connection to it, by its code or by a part of its message.

A part may also be in the message of an exception behind the error.
"""

from collections.abc import Mapping

from django_delayq.exceptions import see

#: Where the page describes the most frequent causes.
SEE_NO_ANSWER = see("troubleshooting#redis-does-not-answer")
#: Messages of the client library, of which the first has no class before 6.4; and the reply of a server that is full.
POOL_EXHAUSTED, CONNECTION_NOT_READY, SERVER_FULL = (
    "Too many connections",
    "Connection not ready",
    "max number of clients reached",
)
#: Part of the message of a fault -> what helps.
_FAULTS = {
    "WRONGTYPE": "manage.py delayq_check --repair deletes keys of another type. "
    f"{see('troubleshooting#a-key-has-a-wrong-type')}",
    "cluster support disabled": "the setting names a server as if it were a cluster: use redis:// in place of "
    f"redis+cluster://. {see('troubleshooting#a-cluster-is-named-as-one-server')}",
    "unknown command 'SENTINEL'": f"'sentinels' names a server that is no Sentinel. {see('redis/connections#forms')}",
    "DB index is out of range": "the server has fewer databases (16 by default): REDIS names a number that it does "
    f"not have. {SEE_NO_ANSWER}",
    "Protocol Error": f"the program at this address is not Redis: check host and port in REDIS. {SEE_NO_ANSWER}",
}
#: Redis's error code for "no writes now" -> what helps.
REJECTIONS = {
    "OOM": "raise maxmemory, or free memory",
    "READONLY": "REDIS must name the primary, not a replica",
    "MISCONF": "Redis cannot write to its disk; see its log, and free some space",
    "NOREPLICAS": "too few replicas are connected for min-replicas-to-write; start them",
}
_CORRECT_HOST = "correct the host in REDIS"
_NO_TLS = "use redis:// if this port has no TLS, else check host and port in REDIS"
# A server that restarts and a wrong address cause the same error.
_CLOSED = "Redis restarts, or REDIS is wrong: check scheme (rediss:// for TLS), host and port"
#: Part of the message of a connection error -> what helps. The first one that is found counts.
_CONNECTIONS = {
    POOL_EXHAUSTED: "raise max_connections in REDIS, or use fewer threads",
    SERVER_FULL: "raise maxclients of the server, or start fewer processes",
    CONNECTION_NOT_READY: "Redis closes new connections: see its log, and compare connected_clients with maxclients",
    # The message already names the certificate.
    "closed a new TLS connection": "else see the log of Redis",
    "Connection refused": "start it, or correct REDIS",
    "No such file or directory": "start it, or correct the path of the socket in REDIS",
    "Permission denied": "allow this user to use the socket (unixsocketperm in redis.conf)",
    "Name or service not known": _CORRECT_HOST,
    "No address associated": _CORRECT_HOST,
    "Name does not resolve": _CORRECT_HOST,
    "Temporary failure in name resolution": "correct the host in REDIS, or the name server of this machine",
    "nodename nor servname": _CORRECT_HOST,
    "Hostname mismatch": "use the host that the certificate of the server names",
    "IP address mismatch": "use the host that the certificate of the server names",
    "certificate has expired": "renew the certificate of the server",
    # The client library needs both in some releases.
    "CERTIFICATE_VERIFY_FAILED": "name the file of its authority in ssl_ca_certs, or trust any server by "
    "ssl_cert_reqs=none and ssl_check_hostname=False",
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "handshake operation timed out": _NO_TLS,
    "Timeout connecting": "check host and port in REDIS, and the firewalls between",
    "No route to host": "check host and port in REDIS, and the firewalls between",
    "Timeout reading": "Redis or the network is too slow; see its SLOWLOG",
    "Connection reset": _CLOSED,
    "Connection closed": _CLOSED,
    "Broken pipe": _CLOSED,
}


def cure_of_fault(message: str) -> str:
    """Return what helps against an error reply, or ""."""
    return _first(_FAULTS, message)


def cure_of_connection(messages: str) -> str:
    """Return what helps if a connection fails, by the messages of the error and of those behind it."""
    return _first(_CONNECTIONS, messages) or "check that it runs, and that REDIS names it"


def _first(cures: Mapping[str, str], message: str) -> str:
    return next((cure for part, cure in cures.items() if part in message), "")
