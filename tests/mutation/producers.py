"""Mutants of producers, each with the tests of which one must fail."""

from tests.stateful.mutations import Mutation

at = Mutation.at

COMMIT = "tests/integration/on_commit"
DEADLINE = "tests/integration/store/test_deadline.py"
LOST, CANCEL = "tests/integration/test_lost_answers.py", "tests/integration/store/test_cancel.py"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a refused resend says that an earlier try stored nothing",
        "task/sender.py",
        "error.maybe_accepted or any(handle.maybe_sent for handle in left)",
        "error.maybe_accepted",
    ): (LOST,),
    at("a handle forgets that its enqueue may have arrived", "task/sender.py", "self._sent and not refused", "False"): (
        LOST,
    ),
    at(
        "a doubtful job that was cancelled is sent again",
        "task/handle.py",
        "        self.draft = None\n        kept",
        "        kept",
    ): (LOST,),
    at(
        "a doubtful job is moved in the handle alone",
        "task/handle.py",
        "            if not self.maybe_sent:\n                return True\n",
        "            return True\n",
    ): (LOST,),
    at(
        "a repeated cancel is too late",
        "store/lua/cancel.lua",
        "  if token ~= '' then record(cancelled, id .. token) end\n",
        "",
    ): (LOST, CANCEL),
    at("a flush raises that is not the last", "task/outbox.py", "last=self.pending.latest is self", "last=True"): (
        COMMIT,
    ),
    at(
        "a refused key keeps later jobs back",
        "task/outbox.py",
        "                    left = [handle for handle in left if handle.draft is not None]\n",
        "                    left = []\n",
    ): (COMMIT,),
    at(
        "what a commit could not send goes with the next",
        "task/outbox.py",
        "hook in hooks if isinstance(hook, _Flush)), None) or cls()",
        "hook in hooks if isinstance(hook, _Flush)), None) or vars(connection).setdefault('_pending', cls())",
    ): (COMMIT,),
    at(
        "the outage of one store keeps another's jobs back",
        "task/outbox.py",
        "        for handles in by_store.values():\n",
        "        for handles in [sum(by_store.values(), [])]:\n",
    ): ("tests/django_tasks/test_options.py",),
    at(
        "a job waits for a commit that nobody tells of",
        "task/outbox.py",
        "        if _is_manual(connection):\n",
        "        if False:\n",
    ): (COMMIT,),
    at(
        "a second database without autocommit lets nothing be enqueued",
        "task/outbox.py",
        " if not _is_beside(each)]",
        "]",
    ): (COMMIT,),
    at(
        "jobs go ahead of a default database without autocommit",
        "task/outbox.py",
        "not configured and connection.alias != DEFAULT_DB_ALIAS and",
        "not configured and",
    ): (COMMIT,),
    at(
        "it is not told which jobs of a commit are late",
        "task/outbox.py",
        'retries: %s", left, failure)\n',
        'retries: %s", failure, left)\n',
    ): (COMMIT,),
    at(
        "a reply has a quarter of the time",
        "store/client/deadline.py",
        "self._until = monotonic() + seconds",
        "self._until = monotonic() + seconds / 4",
    ): (DEADLINE,),
    Mutation(
        "each step of a call has all of its time",
        (
            (
                "store/client/deadline.py",
                "            if self._in_handshake:\n                self._apply_timeout()",
                "            if self._in_handshake:\n"
                "                self._start_timer()\n"
                "                self._apply_timeout()",
            ),
            ("store/client/deadline.py", "if not (self._fresh and self._left() > _SHORTEST):", "if True:"),
        ),
    ): (DEADLINE,),
    at(
        "a dead letter takes a key that belongs to another shard now",
        "store/operations.py",
        "if digest and shard_of(digest, self._shards) != self._shard.index:",
        "if False:",
    ): ("tests/integration/test_shards.py",),
    at(
        "a job enqueued for or rescheduled to too late a time has an inexact score",
        "store/lua/_prelude.lua",
        "return due and math.min(due, LATEST)",
        "return due",
    ): ("tests/integration/store/test_latest_due.py",),
    at(
        "a retry after too long a time has an inexact score",
        "store/lua/settle_and_claim.lua",
        "math.min(now + tonumber(ARGV[at + 2]), LATEST)",
        "now + tonumber(ARGV[at + 2])",
    ): ("tests/integration/store/test_latest_due.py",),
    at(
        "a process that starts while the password is refused ends",
        "management/starting.py",
        "isinstance(error, StoreUnavailable | StoreAuthError)",
        "isinstance(error, StoreUnavailable)",
    ): ("tests/chaos/test_redis_states.py",),
    at(
        "a refused password is logged only once",
        "processes/service.py",
        "again = isinstance(error, StoreAuthError) and",
        "again = False and",
    ): ("tests/unit/test_service.py",),
    at(
        "services of several shards fail with many open files",
        "processes/shutdown.py",
        "if readable([self._wake_read], self._deadline - monotonic()):",
        "if __import__('select').select([self._wake_read], [], [], 1.0)[0]:",
    ): ("tests/integration/test_reporter.py",),
    at(
        "repair stops at a number of shards that is none",
        "management/commands/delayq_check.py",
        "    drift: dict[str, dict[str, Any]] = {}\n",
        "    store.known_shards()\n    drift: dict[str, dict[str, Any]] = {}\n",
    ): ("tests/integration/test_delayq_check.py",),
    at("cancelled ids are kept forever", "store/lua/cancel.lua", "0, -10001)", "0, -1000001)"): (CANCEL,),
    at(
        "an enqueue that arrives after its cancel is a job",
        "store/lua/enqueue.lua",
        "not (any_withdrawn and redis.call('ZSCORE', withdrawn, id))",
        "true",
    ): (CANCEL,),
}
