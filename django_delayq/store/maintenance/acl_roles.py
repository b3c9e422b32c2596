"""ACL roles: the Redis commands that each kind of process needs, as ACL rules.

The commands of scripts are read from their Lua. Commands that Python sends itself are declared here; a test runs each
API under the rule of its role. A rule denies all other commands. Redis checks commands, not scripts: a role can run any
script made of its commands, and can damage the keys that it may write.
"""

import re
from dataclasses import dataclass

from django_delayq.store.client.script import Script

_CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'")
_COMMENT = re.compile(r"--.*")
#: What every connection sends, besides AUTH, which needs no permission: SELECT for a database other than 0, CLIENT
#: SETNAME if the settings give a client_name, EVAL if the server does not know the script yet, what finds a shard in a
#: cluster, and ROLE for a primary that Sentinels named. CLIENT SETINFO is never sent, and Redis 7.0 does not know it.
#: `+@connection` would allow CLIENT KILL, PAUSE and LIST.
_CONNECTION = ("ASKING", "CLIENT|SETNAME", "CLUSTER|SLOTS", "EVAL", "EVALSHA", "ROLE", "SELECT")


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRole:
    """The scripts and commands of one kind of process."""

    name: str
    #: Roles whose rules are part of its own.
    includes: tuple["AclRole", ...] = ()
    #: Names of the scripts it runs besides theirs.
    scripts: tuple[str, ...] = ()
    #: Commands that its APIs send without a script.
    plain: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """Every command that it needs, sorted."""
        of_scripts = {command for name in self.scripts for command in commands_in(Script(name).text)}
        return tuple(sorted(of_scripts.union(self.plain, _CONNECTION, *(role.commands for role in self.includes))))

    def rule(self, prefix: str) -> str:
        """Return its ACL rule for the keys of one prefix."""
        allowed = " ".join(f"+{command.lower()}" for command in self.commands)
        return f"~{prefix}:* resetchannels -@all {allowed}"


def commands_in(text: str) -> set[str]:
    """Return the commands that the text of a script calls."""
    return set(_CALL.findall(_COMMENT.sub("", text)))


#: Commands that compare the SHARDS setting with the number stored in Redis, or store it.
_SHARDS = ("GET", "SET", "HLEN", "STRLEN")
#: Commands that count what is left of an older number of shards.
_COUNT = ("HGET", "HSCAN", "ZRANGE", "ZSCAN")
#: What changes recurring schedules.
_SCHEDULES = ("set_schedules", "pause_schedule", "resume_schedule", "delete_schedules")
#: Web processes and commands that enqueue, that look up, cancel, stop and reschedule jobs by their handles, and that
#: set recurring schedules.
PRODUCER = AclRole(
    name="producer",
    scripts=(
        *("enqueue", "enqueue_one", "find_holders", "replace", "cancel", "reschedule", "stop", "find", "set_layout"),
        *_SCHEDULES,
    ),
    plain=("BLMOVE", "HEXISTS", "HGET", "HMGET", "HSCAN", "TIME", "WAIT", "ZSCORE", *_SHARDS),
)
#: What the figures of monitoring are read with.
_FIGURES = ("snapshot", "due_histogram", "read_totals")
#: `run_dispatcher`, also with `--http`.
DISPATCHER = AclRole(
    name="dispatcher",
    scripts=(
        *("promote", "let_in", "plant", "declare_schedules", "cancel", "reclaim", "report", "set_limits"),
        *("set_layout", *_FIGURES),
    ),
    plain=("BLPOP", "GETRANGE", "HMGET", "HSTRLEN", "INFO", "SMISMEMBER", "TIME", "ZREM", "ZSCORE", *_SHARDS),
)
#: `delayq_shards`, which changes the number of shards.
SHARDS = AclRole(
    name="shards",
    includes=(DISPATCHER,),
    scripts=("hand_over_schedule", "take_over_schedule", "count_lingering"),
    plain=("HDEL", "HGETALL", "HSET", "MEMORY|USAGE", "ZADD", *_COUNT),
)
#: `run_worker` and its tasks. A worker promotes if no dispatcher is alive, `--with-dispatcher` starts one as its child,
#: and its tasks may enqueue. All of them use the REDIS setting of the worker, so its rule includes those of dispatcher
#: and producer.
WORKER = AclRole(
    name="worker",
    includes=(DISPATCHER, PRODUCER),
    scripts=(
        "settle_and_claim",
        "claim_one",
        "sweep",
        "heartbeat",
        "notify",
        "take_slot",
        "give_back_slot",
        "back_off",
    ),
    plain=("BRPOP", "SREM", "XADD", "ZRANGE"),
)
#: People who look at jobs. The commands of this role only read, so it cannot write by a script either.
VIEW = AclRole(
    name="view",
    scripts=("find", "page", *_FIGURES, "find_tenants", "find_limits", "find_error_groups"),
    plain=("GET", "HGET", "HLEN", "HMGET", "HSCAN", "HVALS", "LRANGE", "TIME", "ZSCORE", "ZUNION"),
)
#: People who also cancel, stop, reschedule, move, requeue and discard jobs, pause queues and tasks, quiet workers,
#: change recurring schedules, and enqueue a job of one.
ACTION = AclRole(
    name="action",
    includes=(VIEW,),
    scripts=(
        *("enqueue", "read_bodies", "cancel", "stop", "reschedule", "move", "take_places", "requeue", "revive"),
        *("undo_requeue", "discard", "quiet"),
        *("pause", "resume", "pause_tenant", "resume_tenant", "pause_task", "resume_task", *_SCHEDULES),
        "set_layout",
    ),
    plain=("SET", "WAIT"),
)
#: `delayq_check`, also with `--repair`. Without CONFIG it cannot report how often Redis calls fsync.
CHECK = AclRole(
    name="check",
    scripts=(
        *("audit_types", "audit_places", "audit_records", "audit_tenants", "audit_throttles", "audit_limits"),
        *("audit_schedules", "audit_error_groups", "audit_bytes", "snapshot"),
    ),
    plain=("GET", "HMGET", "HSCAN", "HSTRLEN", "INFO", "ZCARD", "ZRANGE", "ZSCAN", "ZUNION"),
)
#: Names as `manage.py delayq_acl` takes them.
ROLES = {role.name: role for role in (PRODUCER, DISPATCHER, WORKER, VIEW, ACTION, CHECK, SHARDS)}
