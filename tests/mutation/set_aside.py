"""Planted bugs of jobs that are set aside, each with the tests of which at least one must fail."""

from tests.stateful.mutations import EXCHANGE, Mutation

at = Mutation.at
STORE = "tests/integration/store/claims/test_set_aside.py"
JOBS = "tests/integration/worker/pools/test_recovered_jobs.py"
RECOVERY = "tests/integration/worker/pools/test_recovery.py"

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
        "place == ready and to_ready or to_recovered",
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
        "if recovered_job and recovered_waits then notify_workers(KEYS[FIXED + 3 * recovered_job.queue - 1]) end",
        "if remaining > 0 then push_notification(KEYS[FIXED + 3 * unpaused[1] - 1]) end",
    ): (STORE,),
    at(
        "a claim reads recovered jobs that it may not run",
        EXCHANGE,
        "local recovered_job = may_recover and next_recovered()",
        "local recovered_job = next_recovered()",
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
        "    or waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4])\n",
        "    or waiting_place(member, KEYS[base + 1], KEYS[base + 2])\n",
    ): (STORE,),
    at(
        "recovered jobs are not counted",
        "store/lua/snapshot.lua",
        " + (back[1] and redis.call('ZCARD', recovered) or 0)",
        "",
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
}
