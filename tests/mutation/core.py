"""Planned bugs of the core, each with the tests of which at least one must fail.

They are bugs of Python code, and of conditions that no walk of the state machine reaches.
"""

from tests.stateful.mutations.mutation import ENQUEUE, Mutation

at = Mutation.at
RESULTS = "tests/integration/store/queries/test_result_waiter.py"
KILLS, NETWORK = "tests/chaos/processes/test_kills.py", "tests/chaos/network/test_network.py"
WORKER, DISPATCHER = "worker/worker.py", "dispatcher/dispatcher.py"

ENCRYPTION_UNIT = "tests/unit/job/security/test_encryption.py"
ENCRYPTION = "tests/integration/security/test_encryption.py"
ENDED_JOBS = "tests/integration/security/test_ended_jobs.py"
LOST_MASTER = "tests/admin/nodes/test_lost_master.py"
GROWTH = "tests/integration/growth"
SCHEDULE_MOVES = "tests/integration/store/schedules/test_moves.py"
MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a job is acknowledged before it runs",
        WORKER,
        "            self._pool.submit(to_run, self)\n",
        "            for claim in to_run:\n"
        "                self._outcomes.add(claim, Outcome(kind=OutcomeKind.SUCCEEDED))\n"
        "            self._pool.submit(to_run, self)\n",
    ): (KILLS,),
    at(
        "a stopping worker still refreshes its queue names",
        WORKER,
        "        if not self.phase.ends:\n            self._queues.refresh()\n",
        "        self._queues.refresh()\n",
    ): ("tests/integration/commands/run_worker/test_ending.py",),
    at(
        "a worker whose GRACE ends in the middle of a step interrupts nothing",
        WORKER,
        "return None if self._has_ended(phase) else wait",
        "return None if self._has_ended(self.phase) else wait",
    ): ("tests/integration/worker/test_worker_phases.py",),
    at(
        "a reply that could not be read is waited for again",
        "worker/exchange_session.py",
        "        self.in_flight = InFlight.EXCHANGE\n        try:\n",
        "        try:\n",
    ): ("tests/integration/worker/test_exchange_session.py",),
    at(
        "a block ends the newest change of the runtime, not its own",
        "runtime.py",
        "del _open[next(at for at, each in enumerate(_open) if each is changes)]",
        "del _open[-1]",
    ): ("tests/unit/test_runtime.py", "tests/testing_helpers/test_isolation.py"),
    at(
        "an expired lease is no attempt",
        DISPATCHER,
        "return Reclaim(lease=item.lease, attempts=attempts,",
        "return Reclaim(lease=item.lease, attempts=item.attempts,",
    ): ("tests/chaos/processes/test_points.py", KILLS),
    at("leases are not renewed", "worker/claiming/heartbeats.py", "            self.beat()\n", ""): (
        "tests/unit/worker/test_heartbeats.py",
        "tests/chaos/processes/test_every_step.py",
    ),
    at(
        "a crashed job runs among the others",
        "worker/pools/threads.py",
        "return self.recovery if self.recovery and claim.attempts.crash_suspected else self._runner",
        "return self._runner",
    ): ("tests/chaos/tasks/test_poison.py", KILLS),
    at(
        "a worker starts a job whose lease has expired",
        WORKER,
        "return self._held.begin(claim.lease)",
        "return True",
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "an exchange whose reply was lost is not repeated",
        "worker/exchange_session.py",
        "        except StaleExchange:\n",
        "        except Exception:\n",
    ): (NETWORK, "tests/integration/worker/test_one_outcome.py"),
    at(
        "the client library retries commands by itself",
        "store/nodes/connections.py",
        "retry=Retry(NoBackoff(), 0),",
        "retry=Retry(NoBackoff(), 3),",
    ): ("tests/integration/store/nodes/test_connection.py", NETWORK),
    at(
        "a lost reply is taken for a missing job",
        "store/nodes/errors.py",
        "maybe_accepted=not was_not_run(error)",
        "maybe_accepted=False",
    ): (NETWORK, "tests/integration/store/nodes/test_connection.py"),
    at(
        "connections to a demoted primary are kept",
        "store/routing/topology.py",
        "            node.disconnect_idle()\n",
        "            pass\n",
    ): ("tests/integration/store/nodes/test_replaced_server.py",),
    at(
        "the pool of the cache itself is used",
        "store/nodes/pools/cache_pool.py",
        "factory.get_connection_pool(",
        "factory.get_or_create_connection_pool(",
    ): ("tests/unit/store/test_cache_pool.py",),
    at(
        "a pool that makes its own connections is copied",
        "store/nodes/pools/cache_pool.py",
        '        _check(type(pool), _OF_POOL, library="redis")\n',
        "",
    ): ("tests/unit/store/test_cache_pool.py",),
    at(
        "the reason of a server that refuses connections is lost",
        "store/nodes/pools/own_pool.py",
        "                self._raise_refusal()\n",
        "                pass\n",
    ): ("tests/integration/store/nodes/test_cures.py",),
    at(
        "a parameter that no connection takes passes the checks",
        "store/nodes/pools/configured_pool.py",
        "    _check_parameters(pool, setting)\n",
        "",
    ): ("tests/unit/store/test_configured_pool.py",),
    at(
        "a refused certificate is taken for a lost reply",
        "store/nodes/connections.py",
        "else _greet if is_tls else None,",
        "else None,",
    ): ("tests/integration/store/nodes/test_tls.py",),
    at(
        "a long move of a slot is a fault",
        "store/routing/route.py",
        "redirects = redirects + 1 if redirect else 0",
        "redirects += redirect is not None",
    ): ("tests/integration/store/nodes/test_moving_slot.py",),
    at(
        "a Redis error ends the service loop",
        "processes/service.py",
        '            return self._on_failure("%s waits for Redis: %s", error)\n',
        "            raise\n",
    ): ("tests/unit/processes/test_service.py", KILLS),
    at(
        "the listener waits forever on a silent connection",
        "store/client/blocking_listener.py",
        "if now > self._overdue_at:",
        "if False:",
    ): ("tests/integration/store/client/test_blocking_listener.py",),
    at(
        "an exchange that wanted nothing reports that there is nothing",
        WORKER,
        "        if reply.claimed:\n",
        "        if True:\n",
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "children of a fork continue the same sequence of ids",
        "job/ids.py",
        "os.register_at_fork(after_in_child=restart_sequence)\n",
        "",
    ): ("tests/unit/job/test_ids.py", "tests/chaos/processes/test_forks.py"),
    at(
        # The client library itself separates their sockets, so this bug affects only the store and its lock.
        "forked children share their parent's store and its lock",
        "store/store.py",
        "os.register_at_fork(after_in_child=_drop_stores)\n",
        "",
    ): ("tests/chaos/processes/test_forks.py",),
    at("a delay is rounded down", "clock.py", "else ceil(exact)", "else int(exact)"): ("tests/unit/test_clock.py",),
    at(
        "the first write of a heartbeat needs memory",
        "store/lua/heartbeat.lua",
        "redis.call('SREM', unconfirmed, '', unpack(held))\n",
        "",
    ): ("tests/integration/store/claims/test_heartbeat.py", "tests/chaos/redis/test_memory_full.py"),
    at(
        "the first write of an enqueue frees memory",
        ENQUEUE,
        "for _, job in ipairs(batch) do\n",
        "redis.call('HDEL', jobs, '')\nfor _, job in ipairs(batch) do\n",
    ): ("tests/integration/store/enqueue/test_enqueue.py", "tests/chaos/redis/test_memory_full.py"),
    at(
        "a process starts on a server that evicts keys",
        "store/servers/server_info.py",
        '        if self.policy.startswith(("allkeys", "volatile")):\n',
        "        if False:\n",
    ): ("tests/integration/commands/test_eviction.py",),
    at(
        "a signature is valid for any job id",
        "job/security/signing.py",
        "mac.update(raw_id + body)",
        "mac.update(body)",
    ): ("tests/unit/job/security/test_signing.py", "tests/integration/security/test_signing.py"),
    at(
        "one key encrypts all jobs",
        "job/security/encryption.py",
        'hmac.digest(self._keys[name], raw_id, "sha256")',
        "self._keys[name]",
    ): (ENCRYPTION_UNIT,),
    at(
        "a result is stored as it is",
        "store/shard.py",
        'self.cipher.seal(raw_id, RESULT, result) if result else b""',
        "result",
    ): (ENCRYPTION,),
    at(
        "the result of a cancelled job is stored as it is",
        "store/operations/waiting_jobs.py",
        "self._shard.seal_result(raw_id, result.pack())",
        "result.pack()",
    ): (ENDED_JOBS,),
    at(
        "the result that a dispatcher keeps is stored as it is",
        "store/promotion.py",
        "self._shard.seal_result(item.lease[:12], item.result)",
        "item.result",
    ): (ENDED_JOBS,),
    at(
        "progress is stored as it is",
        "store/claims.py",
        "self._cipher.seal(lease[:12], PROGRESS, progress[lease].pack())",
        "progress[lease].pack()",
    ): (ENCRYPTION,),
    at(
        "a body whose expiry moves is stored as it is",
        "store/operations/expiry.py",
        "return encrypt(with_due(plain, due_us, revived=revived), raw_id=raw_id, cipher=shard.cipher)",
        "return with_due(plain, due_us, revived=revived)",
    ): (ENCRYPTION,),
    at(
        "the errors of a worker are stored as they are",
        "store/claims.py",
        "pack_attempts(settlement.attempts, raw_id=settlement.claim.raw_id, cipher=self._cipher)",
        "settlement.attempts.pack()",
    ): (ENCRYPTION,),
    at(
        "the errors of a dispatcher are stored as they are",
        "store/promotion.py",
        "pack_attempts(item.attempts, raw_id=item.lease[:12], cipher=cipher)",
        "item.attempts.pack()",
    ): (ENCRYPTION,),
    at(
        "a process without the key drops the errors that it cannot read",
        "job/security/attempts_record.py",
        "sealed=(rest,))",
        "sealed=())",
    ): (ENCRYPTION,),
    at(
        "a process that encrypts drops what others have sealed",
        "job/security/attempts_record.py",
        "(*attempts.sealed, *filter",
        "(*(), *filter",
    ): (ENCRYPTION,),
    at(
        "what was sealed is read but not joined",
        "job/security/attempts_record.py",
        "found = found.joined(read_attempts(",
        "replace(read_attempts(",
    ): (ENCRYPTION,),
    at(
        "a dead letter that is retried with other arguments is stored as it is",
        "store/operations/dead_letters.py",
        "new = encrypt(with_due(new, due_us, revived=True), raw_id=raw_id, cipher=self._cipher)",
        "new = with_due(new, due_us, revived=True)",
    ): (ENCRYPTION,),
    at(
        "an unknown encryption key is final",
        "job/outcome.py",
        "        return OutcomeKind.UNKNOWN_KEY\n",
        "        return OutcomeKind.UNREADABLE\n",
    ): (ENCRYPTION_UNIT, ENCRYPTION),
    at(
        "a body can be passed off as another task's", "job/body/codec.py", 'return b"body " + task', 'return b"body "'
    ): (ENCRYPTION_UNIT,),
    at(
        "the last secret encrypts",
        "job/security/encryption.py",
        "name = next(iter(self._keys))",
        "name = next(reversed(self._keys))",
    ): (ENCRYPTION_UNIT,),
    at(
        "a claim that is confirmed during reclaim does not count as an attempt",
        "store/lua/reclaim.lua",
        "not is_spared(record) or redis.call('SISMEMBER', unconfirmed, lease) == 1",
        "true",
    ): ("tests/integration/store/promotion/test_reclaim.py",),
    at(
        "a second expired unconfirmed claim is not counted",
        "dispatcher/dispatcher.py",
        " and not item.attempts.spared:",
        ":",
    ): ("tests/integration/store/promotion/test_reclaim.py",),
    at(
        "a job that still runs at the end of GRACE is released as unstarted",
        "worker/claiming/leases.py",
        "_INTERRUPTED if pool.has_begun(claim) else UNSTARTED",
        "UNSTARTED",
    ): ("tests/integration/commands/run_worker/test_ending.py",),
    at(
        "a job that kills its process is tried forever",
        "job/outcome.py",
        "or not policy.allows(attempt):",
        "or (not policy.allows(attempt) and ending not in (OutcomeKind.CRASHED, OutcomeKind.LEASE_EXPIRED)):",
    ): ("tests/unit/job/test_outcome.py", "tests/chaos/tasks/test_poison.py"),
    at(
        "a repair gives an orphaned job a second place",
        "store/lua/audit_records.lua",
        "if not is_placed(member, claim, queue) then",
        "if true then",
    ): ("tests/integration/store/maintenance/test_consistency_check.py",),
    at("a kept result never expires", "store/lua/_places.lua", "  redis.call('PEXPIRE', key, ttl)\n", ""): (RESULTS,),
    at("a cancelled job keeps no result", "store/lua/cancel.lua", "if results then keep", "if false then keep"): (
        RESULTS,
    ),
    at("a failed Django task is retried", "job/job.py", "on_error=False)", "on_error=True)"): (
        "tests/django_tasks/contract/test_running.py",
    ),
    at(
        "a Django task with wrong arguments waits for new code",
        "worker/settlement.py",
        "waits_on_mismatch=kind.waits_on_mismatch",
        "waits_on_mismatch=True",
    ): ("tests/django_tasks/contract/test_running.py",),
    at(
        "a stored job loses its run_after",
        "job/body/options.py",
        '        options["a"] = job.run_after_us\n',
        "        pass\n",
    ): ("tests/django_tasks/contract/test_results.py",),
    at(
        "an error message shows a secret given to the wrong setting",
        "conf/validators.py",
        "*([str] if self.shows_text else [])",
        "str",
    ): ("tests/unit/conf/test_validators.py",),
    at(
        "an option of run_worker is not validated",
        "management/starting.py",
        'field.metadata["validate"](_option(key), value)',
        "value",
    ): ("tests/unit/conf/test_validators.py",),
    at("aliases share one store", "conf/settings.py", "-{quote(alias, safe='')}\"", '"'): (
        "tests/django_tasks/contract/test_results.py",
    ),
    at(
        "a new minute of metrics drops the hour before",
        "store/lua/report.lua",
        ".. row .. '\\n' .. string.sub(series, 1, kept)",
        ".. row .. '\\n'",
    ): ("tests/integration/store/test_report.py",),
    at(
        "a second report of a minute replaces the first",
        "store/lua/report.lua",
        "(sums[figure] or 0) + count",
        "count",
    ): ("tests/integration/store/test_report.py",),
    at(
        "a connection with an unread reply is used again",
        "store/nodes/connection_cache.py",
        "        self._connection.disconnect()\n",
    ): ("tests/integration/store/nodes/test_connection_cache.py",),
    at(
        "expired jobs are read from any server that the pool connects to",
        "store/shard.py",
        "lambda: self.route.read_all(encoded)",
        "lambda: [self.client.execute_command(*command) for command in commands]",
    ): ("tests/integration/store/nodes/test_replaced_server.py",),
    at(
        "servers are read one after the other",
        "store/client/at_once.py",
        "if len(functions) < 2:",
        "if True:",
    ): ("tests/unit/store/test_at_once.py",),
    at(
        "a server that does not answer takes the page with it",
        "store/queries/shard_reads.py",
        "            elif self._partial:\n",
        "            elif False:\n",
    ): (LOST_MASTER,),
    at(
        "code counts the jobs of those servers that answer",
        "store/store.py",
        "ShardReads(self._producer_shards[: self.shard_count], partial=partial)",
        "ShardReads(self._producer_shards[: self.shard_count], partial=True)",
    ): (LOST_MASTER,),
    at(
        "each page waits for a silent server",
        "store/queries/shard_reads.py",
        "node.record(reached=not isinstance(error, UNREACHABLE))",
        "pass",
    ): ("tests/admin/nodes/test_losing.py",),
    at(
        "an action is tried on a server that does not answer",
        "admin/actions/run.py",
        "    if shard not in page.answering:\n",
        "    if False:\n",
    ): (LOST_MASTER,),
    at(
        "only the first server is checked",
        "store/servers/server_check.py",
        "for server, info in self.answering:\n            if",
        "for server, info in self.answering[:1]:\n            if",
    ): ("tests/unit/store/test_server_check.py",),
    at(
        "before a count nothing lingers in an old shard",
        "store/lua/_layout.lua",
        "  if layout < struct.unpack('>I8', left) then return true end\n",
        "",
    ): (GROWTH,),
    at(
        "a shard takes jobs of another layout",
        "store/lua/_layout.lua",
        "  if layout_number(stored) ~= number then",
        "  if false then",
    ): (GROWTH,),
    at(
        "what is stored during a count is forgotten",
        "store/lua/_layout.lua",
        "  if begun > 0 then redis",
        "  if false then redis",
    ): (GROWTH,),
    at(
        "a value that came back to its first shard is not asked for there",
        "store/growth/lingering.py",
        "            elif len(layout.places(value)) > 1:\n",
        "            elif False:\n",
    ): (GROWTH,),
    at(
        "a job that was sent on is asked for in the same shard again",
        "task/batch.py",
        "passed=self._passed + 1)",
        "passed=self._passed)",
    ): (GROWTH,),
    at(
        "a process that starts asks shard 0 for the layout",
        "store/store.py",
        "self.check_shards(shard=job.shard)",
        "self.check_shards()",
    ): ("tests/integration/nodes/test_first_shard_lost.py",),
    at(
        "what lingers in a shard that drains is forgotten",
        "store/growth/growth.py",
        "left[index].update(self.held(index))",
        "left[index] = Counter(self.held(index))",
    ): (GROWTH,),
    at(
        "a schedule moves while its job runs",
        "store/lua/hand_over_schedule.lua",
        "if running_job(schedule) then return {'RUNNING'} end\n",
        "",
    ): (SCHEDULE_MOVES,),
    at(
        "a deleted schedule comes back with a slow process",
        "store/lua/take_over_schedule.lua",
        " or redis.call('ZSCORE', arrivals, id .. version)",
        "",
    ): (GROWTH,),
    at(
        "a dead letter comes twice to another shard",
        "store/lua/revive.lua",
        "if redis.call('ZSCORE', arrivals, id .. ARGV[10]) then return {'GONE', 0} end\n",
        "",
    ): (GROWTH,),
}
