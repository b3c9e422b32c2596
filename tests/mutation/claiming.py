"""Planned bugs of which jobs a worker claims: those that are set aside, and those of weighted queues.

Each has the tests of which at least one must fail.
"""

from tests.stateful.mutations.mutation import CANDIDATES, EXCHANGE, Mutation

at = Mutation.at
STORE = "tests/integration/store/claims/test_set_aside.py"
JOBS = "tests/integration/worker/pools/test_recovered_jobs.py"
RECOVERY = "tests/integration/worker/pools/test_recovery.py"
SHARES, WEIGHTED = "tests/unit/worker/test_queue_weights.py", "tests/integration/worker/test_weighted_queues.py"
WEIGHTS, OPTION = "worker/claiming/queue_weights.py", "management/queue_option.py"
OPTIONS, COMMAND = "tests/unit/management/test_queue_option.py", "tests/integration/commands/run_worker/test_queues.py"
REPORT = "tests/integration/store/test_report.py"
TURNS = "tests/integration/store/tenants/test_turns.py"
MIXED = "tests/integration/store/tenants/test_mixed_settings.py"
STALE = "tests/integration/store/tenants/test_stale_entries.py"
CHOICE = "store/lua/_choice.lua"

MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    at(
        "a job that may not run here blocks the queue", EXCHANGE, "if suspect and not may_recover then", "if false then"
    ): (STORE,),
    at("a job that is set aside loses its rank", EXCHANGE, "{entry.rank, entry.member}", "{now, entry.member}"): (
        STORE,
    ),
    at(
        "a moved job is no longer set aside",
        "store/lua/move.lua",
        "place == KEYS[base + 3] and to_recovered or to_ready",
        "to_ready",
    ): (STORE,),
    at(
        "a worker that claims a recovered job notifies nobody of the others",
        EXCHANGE,
        "if recovered_job and recovered_waits then notify_workers(",
        "if false then push_notification(",
    ): (STORE,),
    at(
        "recovered jobs that remain notify forever",
        EXCHANGE,
        "if recovered_job and recovered_waits then notify_workers(KEYS[FIXED + 4 * recovered_job.queue - 2]) end",
        "if any_recovered(request) then push_notification(KEYS[FIXED + 4 * request.queues[1] - 2]) end",
    ): (STORE,),
    at(
        "a claim reads recovered jobs that it may not run",
        EXCHANGE,
        "local recovered_job = may_recover and next_recovered(now, request)",
        "local recovered_job = next_recovered(now, request)",
    ): (STORE,),
    at(
        "a claim stops after one round of setting aside",
        EXCHANGE,
        "until #claims > 0 or #aside == 0 or moved >= MOST_ASIDE",
        "until true",
    ): (STORE,),
    at(
        "a resumed queue does not notify of its recovered jobs",
        "store/lua/resume.lua",
        " + redis.call('ZCARD', recovered)\n",
        "\n",
    ): (STORE,),
    at(
        "the consistency check does not know where recovered jobs wait",
        "store/lua/audit_records.lua",
        "    or waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], KEYS[base + 5])\n",
        "    or waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 5])\n",
    ): (STORE,),
    at(
        "recovered jobs are not counted",
        "store/lua/snapshot.lua",
        "local count = head[1] and redis",
        "local count = head[1] and place ~= recovered and redis",
    ): (STORE,),
    at(
        "a worker claims recovered jobs without a free process",
        "worker/pools/recovery.py",
        "        return self._reserved\n",
        "        return True\n",
    ): (JOBS, RECOVERY),
    at(
        "each recovered job starts another process",
        "worker/pools/recovery.py",
        " or self._processes.count >= MAX_PROCESSES",
        "",
    ): (RECOVERY, JOBS),
    at(
        "the reservation of a process is never released",
        "worker/pools/recovery.py",
        "            self._reserved -= 1\n",
        "",
    ): (RECOVERY, JOBS),
    at(
        "idle recovery processes never end",
        "worker/pools/recovery.py",
        "                self._processes.end_idle()\n",
        "                pass\n",
    ): (RECOVERY,),
    at(
        "an outage of one shard keeps the reserved processes of all shards",
        "worker/worker.py",
        "            self._recovered.cancel_reservation()\n",
        "",
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "a recovered job runs without a process of its own",
        "worker/worker.py",
        "if self.phase.claims and may_run and self._blocking_claim.confirm(reply):",
        "if self.phase.claims and self._blocking_claim.confirm(reply):",
    ): ("tests/integration/worker/test_one_outcome.py",),
    at(
        "a worker forgets a recovered job that it released",
        "worker/pools/recovery.py",
        "reply.recovered or not may_run",
        "reply.recovered",
    ): (RECOVERY,),
    at(
        "a worker with --drain exits before the recovered jobs have run",
        "worker/worker.py",
        " or self._recovered.jobs_left",
        "",
    ): (JOBS,),
    at(
        "a job that is set aside ends the claim early",
        "store/lua/settle_and_claim.lua",
        "      aside[#aside + 1] = entry\n",
        "      aside[#aside + 1], full = entry, #claims > 0\n",
    ): ("tests/integration/store/claims/test_set_aside.py",),
    at("claims of weighted queues do not count", WEIGHTS, "self._used[queue] += 1 / self._weights[queue]", "pass"): (
        SHARES,
    ),
    at("all weights are equal", WEIGHTS, "self._used[queue] += 1 / self._weights[queue]", "self._used[queue] += 1"): (
        SHARES,
    ),
    at(
        "claims of weighted queues that were given back count",
        WEIGHTS,
        "self._used[queue] -= 1 / self._weights[queue]",
        "pass",
    ): (SHARES,),
    at(
        "an empty queue saves its share for later",
        WEIGHTS,
        "self._used[queue] = max(self._used[queue], mean)",
        "pass",
    ): (SHARES,),
    at(
        "an empty queue is forgiven what it owes",
        WEIGHTS,
        "self._used[queue] = max(self._used[queue], mean)",
        "self._used[queue] = mean",
    ): (SHARES,),
    at(
        "a queue that was alone pays for it",
        WEIGHTS,
        "            self._used = dict.fromkeys(self._used, 0.0)\n",
        "            pass\n",
    ): (SHARES,),
    at(
        "the queue that is ahead of its share comes first",
        WEIGHTS,
        "self._weights[queue] * (self._used[queue] - due)))",
        "-self._weights[queue] * (self._used[queue] - due)))",
    ): (SHARES,),
    at(
        "single claims of weighted queues come in rows",
        WEIGHTS,
        "due = mean + 1 / total",
        "due = mean + 7 / total",
    ): (SHARES,),
    at("a batch of weighted queues is always full", WEIGHTS, "limit = min(limit, ahead, behind)", "pass"): (SHARES,),
    at(
        "a batch of weighted queues has no limit",
        WEIGHTS,
        "limit, weights, claims, soonest = float(MAX_BATCH)",
        "limit, weights, claims, soonest = 64.0",
    ): (SHARES,),
    at(
        "a batch may put the other queues too far behind",
        WEIGHTS,
        "limit = min(limit, ahead, behind)",
        "limit = min(limit, ahead)",
    ): (SHARES,),
    at(
        "a reply without claims shows that all queues before the last are empty",
        WEIGHTS,
        "set(claimed)), default=0)",
        "set(claimed)), default=len(self.order) - 1)",
    ): (SHARES,),
    at(
        "a batch may go to any queue behind empty ones",
        WEIGHTS,
        "limit = min(limit, ahead, behind)",
        "limit = min(MAX_BATCH, ahead, behind)",
    ): (SHARES,),
    at(
        "a worker claims more than the shares of its queues allow",
        "worker/worker.py",
        "want = min(want, self._weights.limit)\n",
        "pass\n",
    ): (WEIGHTED,),
    at(
        "a worker names its weighted queues in a fixed order",
        "worker/claiming/queue_listener.py",
        "return self._weights.order if self._weights else self._served",
        "return self._served",
    ): (WEIGHTED,),
    at(
        "a worker counts claims that waited in vain",
        "worker/worker.py",
        "for each, outcome in settled if outcome.kind is OutcomeKind.UNSTARTED]",
        "for each, outcome in settled if False]",
    ): (WEIGHTED,),
    at(
        "an exchange that claims nothing ends what queues owe",
        "worker/claiming/queue_weights.py",
        "has_more = reply.has_more or not reply.claimed",
        "has_more = reply.has_more",
    ): (WEIGHTED,),
    at(
        "a weight may be 0",
        OPTION,
        "if not 1 <= number <= _MAX_WEIGHT:",
        "if not 0 <= number <= _MAX_WEIGHT:",
    ): (OPTIONS,),
    at("a weight may have digits of any script", OPTION, 're.compile("[0-9]{1,4}")', 're.compile(r"\\d{1,4}")'): (
        OPTIONS,
    ),
    at(
        "the last of two weights of a queue holds",
        OPTION,
        "        if queue in weights:\n",
        "        if False:\n",
    ): (OPTIONS,),
    at(
        "weights hold beside a list of queues",
        OPTION,
        'if options["queues"] is not None and options["weights"] is not None:',
        "if False:",
    ): (OPTIONS,),
    at("a pattern is the name of a weighted queue", OPTION, 'if name.startswith("-") or "*" in name:', "if False:"): (
        OPTIONS,
    ),
    at(
        "the workers of a supervisor have no weights",
        "processes/supervisor.py",
        '    "weights",\n',
        "",
    ): (COMMAND,),
    at(
        "a report may have another number of weights than of queues",
        "store/queries/snapshot.py",
        'weights if len(weights) == len(found.get("queues", ())) else ()',
        "weights",
    ): (REPORT,),
    at(
        "the tags of the next queue are dropped too",
        CHOICE,
        "  drop_idle(hash, hash .. HIGHEST, 10 * DROPPED)\n",
        "  drop_idle(hash, HIGHEST, 10 * DROPPED)\n",
    ): (TURNS,),
    at(
        "a paused tenant's jobs stand for its queue among others",
        CANDIDATES,
        "      heads = first_unpaused(now, place, heads)\n",
    ): (TURNS,),
    at(
        "jobs of a queue leave the order of its turns where few ranks are known",
        CANDIDATES,
        "last_rank = math.max(last_rank, ranks[i] or job.rank)",
        "last_rank = ranks[i] or job.rank",
    ): (TURNS,),
    at(
        "claims of other queues leave no room for a fair one",
        "worker/claiming/prefetch.py",
        "self.size + _FAIR_AHEAD - self.held_fair",
        "self.size + _FAIR_AHEAD - self.held",
    ): ("tests/integration/commands/run_worker/test_fair_queues.py",),
    at(
        "a worker does not count its claims of fair queues",
        "worker/claiming/prefetch.py",
        "sum(claim.queue in fair_queues for claim in claims)",
        "0",
    ): ("tests/integration/commands/run_worker/test_fair_queues.py",),
    at(
        "an entry of an earlier rank counts as a turn",
        CHOICE,
        "if rank and time_of(rank) == string.sub(entry, 17, 22) then",
        "if rank then",
    ): (MIXED,),
    at(
        "only the first jobs of a queue get late turns",
        CHOICE,
        "count > PART and {-PART, now % count} or {}",
        "{}",
    ): (MIXED,),
    at(
        "the middle of a queue gets no late turns",
        CHOICE,
        "{-PART, now % count}",
        "{-PART}",
    ): (MIXED,),
    at(
        "jobs that ended in an earlier release count for a limit",
        "store/lua/_turns.lua",
        "    drop_stale_entries(tenant)\n",
    ): (MIXED,),
    at("a claim drops all stale entries at once", CHOICE, "  stale_left = stale_left - 1\n"): (STALE,),
    at(
        "tenants without jobs hide those behind them",
        CHOICE,
        "active_flows(place, '(' .. last_read.entry, 1)",
        "{}, false",
    ): (STALE,),
    at(
        "the same tenant is read again behind each tenant without jobs",
        CHOICE,
        "      last_read = back or last_read\n",
    ): (STALE,),
    at(
        "a claim that has dropped enough stale entries says that there is no more",
        CANDIDATES,
        "fair_left)) + 1)\n      if is_cut then left[#left + 1] = queue end\n",
        "fair_left)) + 1)\n",
    ): (STALE,),
    at(
        "a claim that found a paused tenant and stale entries says that there is no more",
        CANDIDATES,
        "        if is_cut then left[#left + 1] = queue end\n      end\n",
        "      end\n",
    ): (STALE,),
    at(
        "a claim that mended a turn says that there is no more",
        CHOICE,
        "        begin_turns(flow.flow)\n        is_cut = true\n",
        "        begin_turns(flow.flow)\n",
    ): (STALE,),
    at(
        "stale entries of paused tenants hide jobs without a turn",
        CHOICE,
        "    give_turns(now, place, true)\n",
    ): (STALE,),
    at(
        "a flow that lost its turn is not served",
        CHOICE,
        "      if is_sure or not known[i] then\n",
        "      if not known[i] then\n",
    ): ("tests/integration/store/tenants/test_damage.py",),
    at(
        "a turn that a claim gave stays if a worker without fair queues takes its job",
        EXCHANGE,
        "if has(claim.member, HAS_EXTRAS) or is_late then",
        "if has(claim.member, HAS_EXTRAS) then",
    ): (MIXED,),
    at(
        "a job that is released while its tenant is paused costs it a turn",
        "store/lua/_turns.lua",
        "put_turn(ACTIVE, flow, tag) else end_turns(flow, tag) end",
        "put_turn(ACTIVE, flow, tag) end",
    ): (TURNS,),
    at(
        "a released job with a late turn costs its tenant that turn",
        "store/lua/_turns.lua",
        "  if not state then return end\n  tag = math",
        "  if not state or weight ~= nil and weight == 0 then return end\n  tag = math",
    ): (MIXED,),
    at(
        "a released job without a tenant costs the others without one a turn",
        "store/lua/_turns.lua",
        "  if not is_ready(ready) then return end\n  local tenant, weight = tenant_of(member, ready)\n  local flow",
        "  local tenant, weight = tenant_of(member, ready)\n  if not tenant then return end\n  local flow",
    ): (MIXED,),
}
