"""ACL roles: the Redis commands that each kind of process needs, as ACL rules.

Commands of scripts are read from their Lua. Commands that Python sends itself are declared here; a test runs each API
under the rule of its role. Redis checks commands, not scripts: a role can run any script made of its commands, and can
damage the keys that it may write. A rule denies everything else.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django_delayq.store.client.script import Script

_CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'")
_COMMENT = re.compile(r"--.*")
#: What every connection sends, besides AUTH, which needs no permission: SELECT for a database other than 0, CLIENT
#: SETNAME if the settings give a client_name, EVAL if the server does not know the script yet. Not CLIENT SETINFO,
#: which is never sent and which Redis 7.0 does not know; not +@connection, which includes CLIENT KILL, PAUSE and LIST.
_CONNECTION = ("CLIENT|SETNAME", "EVAL", "EVALSHA", "SELECT")


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRole:
    """One kind of process, and what it may do in Redis."""

    name: str
    #: One line for people.
    purpose: str
    #: Names of the scripts it runs.
    scripts: tuple[str, ...]
    #: Commands that its APIs send without a script.
    plain: frozenset[str]

    @property
    def commands(self) -> tuple[str, ...]:
        """Every command that it needs, sorted."""
        inside = {command for name in self.scripts for command in commands_in(Script(name).text)}
        return tuple(sorted(inside.union(self.plain, _CONNECTION)))

    def rule(self, prefix: str) -> str:
        """Return its ACL rule for the keys of one prefix."""
        allowed = " ".join(f"+{command.lower()}" for command in self.commands)
        return f"~{prefix}:* resetchannels -@all {allowed}"


def commands_in(text: str) -> set[str]:
    """Return the commands that the text of a script calls."""
    return set(_CALL.findall(_COMMENT.sub("", text)))


def _joined(
    name: str, purpose: str, *parts: AclRole, scripts: Iterable[str] = (), plain: Iterable[str] = ()
) -> AclRole:
    return AclRole(
        name=name,
        purpose=purpose,
        scripts=(*scripts, *(script for part in parts for script in part.scripts)),
        plain=frozenset(plain).union(*(part.plain for part in parts)),
    )


#: SHARDS is compared with the number stored in Redis, and stored there.
_SHARDS = ("GET", "SET", "HLEN")
PRODUCER = _joined(
    "producer",
    "web processes and commands that enqueue, look up, cancel and reschedule jobs by their handles",
    scripts=("enqueue", "cancel", "reschedule", "find"),
    plain=("BLMOVE", "HGET", *_SHARDS),
)
DISPATCHER = _joined(
    "dispatcher",
    "run_dispatcher",
    scripts=("promote", "reclaim", "report"),
    plain=("BLPOP", "HMGET", "HSTRLEN", "INFO", "SMISMEMBER", "ZREM", *_SHARDS),
)
#: A worker promotes if no dispatcher is alive, may start one as its child, and its tasks may enqueue. All of them use
#: the REDIS setting of the process, so its rule includes those of dispatcher and producer.
WORKER = _joined(
    "worker",
    "run_worker, also --with-dispatcher, and the tasks it runs, which may enqueue",
    DISPATCHER,
    PRODUCER,
    scripts=("settle_and_claim", "heartbeat", "notify"),
    plain=("SREM", "XADD", "ZRANGE"),
)
VIEW = _joined(
    "view",
    "people who look at jobs: its commands only read, so it cannot write by a script either",
    scripts=("find", "page", "snapshot", "due_histogram"),
    plain=("HGET", "ZUNION"),
)
ACTION = _joined(
    "action",
    "people who also act: cancel, reschedule, move, requeue and discard jobs, pause queues, quiet workers",
    VIEW,
    scripts=("cancel", "reschedule", "move", "requeue", "discard", "pause", "resume", "quiet"),
)
CHECK = _joined(
    "check",
    "delayq_check, also with --repair; without CONFIG it does not know how often Redis forces its file to disk",
    scripts=("audit_types", "audit_places", "audit_records", "audit_bytes"),
    plain=("GET", "HMGET", "HSCAN", "HSTRLEN", "INFO", "ZCARD", "ZRANGE", "ZSCAN", "ZUNION"),
)
#: Names as `manage.py delayq_acl` takes them.
ROLES = {role.name: role for role in (PRODUCER, DISPATCHER, WORKER, VIEW, ACTION, CHECK)}
