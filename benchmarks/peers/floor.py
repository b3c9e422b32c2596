"""Floors: loops of nothing but redis-py and the task, which show what the machine allows.

One by one: a blocking move from the ready list to a running list, the run, the removal. Batches: one script removes the
finished jobs from the leases and claims the next ones, with their bodies: the minimum of any queue with leases. Delayed
jobs: one script takes what is due and returns the next due time. The loop runs the jobs and sleeps until then, 10 ms at
most.
"""

import json
import os
import sys
import time
from typing import Any

from redis import Redis

from benchmarks.peer_runtime import work

NAME = "bare redis-py"
CONFIGURATIONS = {
    "default": "one by one: move, run, remove",
    "batch 1": "script with leases, one job a round trip",
    "batch 16": "the same, 16 jobs a round trip",
    "batch 64": "the same, 64 jobs a round trip",
    "apart": "delayed jobs: one process pushes what is due, another pops and runs it",
}
_NOT = "a loop, not a queue"
UNSUPPORTED = dict.fromkeys(("instant", "idle", "waiting", "waits_threads", "waits_asyncio"), _NOT)
WAIT_CONFIGURATIONS = {"threads": "apart"}
CONFIGURATION = os.environ["BENCH_CONFIGURATION"]
BATCH = int(CONFIGURATION.removeprefix("batch ")) if CONFIGURATION.startswith("batch ") else 0

SETTLE_AND_CLAIM = """
for number = 3, #ARGV do
    if redis.call('ZREM', KEYS[2], ARGV[number]) == 1 then redis.call('HDEL', KEYS[3], ARGV[number]) end
end
local ids = redis.call('LPOP', KEYS[1], ARGV[1])
if not ids then return {} end
for _, id in ipairs(ids) do redis.call('ZADD', KEYS[2], ARGV[2], id) end
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
"""

TAKE_DUE = """
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE')
if due[1] then redis.call('ZREM', KEYS[1], unpack(due)) end
if due[1] and ARGV[2] == 'apart' then redis.call('RPUSH', KEYS[2], unpack(due)); due = {} end
return {redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or 0, due}
"""
#: Longest sleep of the loop of delayed jobs, in seconds: a job that was added meanwhile may be due first.
LOOK = 0.01

client: Any = Redis.from_url(os.environ["BENCH_URL"])


def send(task: str, number: int, at_us: int | None) -> None:
    """Push one job."""
    body = json.dumps([task, number, *work.PAYLOAD])
    if at_us is not None:
        client.zadd("scheduled", {body: at_us})
    elif BATCH:
        client.pipeline(transaction=False).hset("bodies", number, body).rpush("ready", number).execute()
    else:
        client.rpush("ready", body)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Push 500 jobs in a round trip."""
    for first in range(0, len(jobs), 500):
        batch = jobs[first : first + 500]
        bodies = {number: json.dumps([task, number, *work.PAYLOAD]) for number, _ in batch}
        if batch[0][1] is not None:
            client.zadd("scheduled", {bodies[number]: at_us for number, at_us in batch})
        elif BATCH:
            client.pipeline(transaction=False).hset("bodies", mapping=bodies).rpush("ready", *bodies).execute()
        else:
            client.rpush("ready", *bodies.values())


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands."""
    command = [sys.executable, "-m", "benchmarks.peers.floor"]
    return [*(command for _ in range(processes)), [*command, "delayed"]]


def _run(body: bytes) -> None:
    task, *arguments = json.loads(body)
    work.TASKS[task](*arguments)


def _one_by_one() -> None:
    while True:
        body = client.blmove("ready", "running", 2, "LEFT", "RIGHT")
        if body is not None:
            _run(body)
            client.lrem("running", 1, body)


def _in_batches() -> None:
    script, done = client.register_script(SETTLE_AND_CLAIM), []
    while True:
        answer = script(keys=["ready", "leases", "bodies"], args=[BATCH, time.time() + 30, *done])
        if not answer:
            time.sleep(0.001)
        done, bodies = answer or ([], [])
        for body in bodies:
            _run(body)


def _delayed() -> None:
    take_due = client.register_script(TAKE_DUE)
    while True:
        next_us, bodies = take_due(keys=["scheduled", "ready"], args=[time.time_ns() // 1_000, CONFIGURATION])
        for body in bodies:
            _run(body)
        # Seldom while there is none: in other measurements this loop must cost nothing.
        time.sleep(max(0.0, min(int(next_us) / 1e6 - time.time(), LOOK)) if int(next_us) else 0.5)


if __name__ == "__main__":
    if sys.argv[1:]:
        _delayed()
    else:
        _in_batches() if BATCH else _one_by_one()
