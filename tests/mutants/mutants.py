"""Mutants: bugs of Python and of conditions no walk meets, each with the tests of which one must fail."""

from tests.machine.planted_bugs import ENQUEUE, PlantedBug

at = PlantedBug.at
KILLS, STATES, NETWORK = "tests/chaos/test_kills.py", "tests/chaos/test_redis_states.py", "tests/chaos/test_network.py"
WORKER, DISPATCHER = "worker.py", "dispatcher.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "a job is acknowledged before it runs",
        WORKER,
        "                self._pool.submit(claim, self)\n",
        "                self._ended.add(claim, Outcome(ending=Ending.SUCCEEDED))\n"
        "                self._pool.submit(claim, self)\n",
    ): (KILLS,),
    at(
        "a lapsed lease is no attempt",
        DISPATCHER,
        "return Reclaim(lease=item.lease, attempts=attempts,",
        "return Reclaim(lease=item.lease, attempts=item.attempts,",
    ): ("tests/chaos/test_points.py", KILLS),
    at("leases are not renewed", "leases.py", "        self.beat()\n", ""): ("tests/chaos/test_every_step.py",),
    at(
        "a suspect runs among the others",
        "pools/threads.py",
        "self._alone.run(claim, may_begin) if claim.attempts.suspect else run(claim)",
        "run(claim)",
    ): ("tests/chaos/test_poison.py", KILLS),
    at(
        "a worker whose lease surely ran out begins all the same",
        WORKER,
        "return self._leases.trusts(claim.lease)",
        "return True",
    ): ("tests/integration/test_one_outcome.py", "tests/integration/test_run_worker.py", KILLS),
    at(
        "an exchange whose answer was lost is forgotten",
        WORKER,
        "        except StaleExchange:\n            # What jobs ended by",
        "        except Exception:\n            # What jobs ended by",
    ): (NETWORK, "tests/integration/test_one_outcome.py"),
    at(
        "the client library repeats commands by itself",
        "store/connection.py",
        "retry=Retry(NoBackoff(), 0),",
        "retry=Retry(NoBackoff(), 3),",
    ): ("tests/integration/test_connection.py", NETWORK),
    at(
        "a lost answer is taken for a job that is not there",
        "store/scripts.py",
        'f"Redis did not answer: {message}", maybe_accepted=sent',
        'f"Redis did not answer: {message}", maybe_accepted=False',
    ): (NETWORK, "tests/integration/test_connection.py"),
    at(
        "connections to a demoted primary are kept",
        "store/scripts.py",
        "                client.connection_pool.disconnect(inuse_connections=False)\n",
        "                pass\n",
    ): ("tests/integration/test_connection.py", STATES),
    at(
        "an error of Redis ends the loop",
        "service.py",
        '            return self._failed("%s waits for Redis: %s", error)\n',
        "            raise\n",
    ): ("tests/unit/test_service.py", KILLS),
    at(
        "silence on the bell's connection is waited for without end",
        "store/waker.py",
        "if now - self._sent_at > BLOCK + COMMAND_TIMEOUT:",
        "if False:",
    ): ("tests/integration/test_connection.py", "tests/integration/test_sleeping.py", NETWORK),
    at(
        "children of a fork count on from one number",
        "job_id.py",
        "os.register_at_fork(after_in_child=_after_fork)\n",
        "",
    ): ("tests/unit/test_job_id.py", "tests/chaos/test_forks.py"),
    at(
        "children of a fork share their parent's sockets",
        "store/store.py",
        "os.register_at_fork(after_in_child=_drop_store)\n",
        "",
    ): ("tests/chaos/test_forks.py",),
    at("a delay is rounded down", "clock.py", "else ceil(exact)", "else int(exact)"): ("tests/unit/test_clock.py",),
    at(
        "a heartbeat begins by growing",
        "store/lua/heartbeat.lua",
        "redis.call('ZREM', leases, '')\n",
        "",
    ): ("tests/integration/store/test_heartbeat.py", "tests/chaos/test_memory_full.py"),
    at(
        "an enqueue begins by freeing",
        ENQUEUE,
        "local scheduled, ready, earliest, stored = {}, {}, nil, {}\n",
        "local scheduled, ready, earliest, stored = {}, {}, nil, {}\nredis.call('HDEL', bodies, '')\n",
    ): ("tests/integration/store/test_enqueue.py", "tests/chaos/test_memory_full.py"),
    at(
        "a server that evicts is started on",
        "store/server.py",
        '        if self.policy.startswith(("allkeys", "volatile")):\n',
        "        if False:\n",
    ): ("tests/integration/test_eviction.py",),
    at(
        "a signature holds for any id",
        "seal.py",
        "code.update(raw_id + body)",
        "code.update(body)",
    ): ("tests/unit/test_seal.py", "tests/integration/test_signing.py"),
    at(
        "what runs at the end of GRACE is given back as not begun",
        WORKER,
        "Outcome(ending=Ending.INTERRUPTED, error=error)",
        "Outcome(ending=Ending.UNSTARTED)",
    ): ("tests/integration/test_run_worker.py",),
    at(
        "a job that kills its process is tried for ever",
        "outcome.py",
        "or attempt >= policy.max_attempts:",
        "or (attempt >= policy.max_attempts and ending not in (Ending.CRASHED, Ending.LAPSED)):",
    ): ("tests/unit/test_outcome.py", "tests/chaos/test_poison.py"),
    at(
        "a repair gives a lost job a second place",
        "store/lua/audit_records.lua",
        "if not is_placed(member, known, queue) then",
        "if true then",
    ): ("tests/integration/store/test_audit.py",),
}
