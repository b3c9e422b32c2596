"""Power loss: the append-only file, cut at any byte, loads as the state after one of the scripts.

Redis writes all commands of one script as a transaction (MULTI … EXEC) and drops an incomplete one when it loads the
file. So a transition is whole or absent there too. The long form cuts at every byte of the last scripts.
"""

import random
import shutil
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq.conf.config import Config, DispatcherConfig
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.keys import Keys
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.harness.options import sized
from tests.shard_apis import ShardApis
from tests.stateful import invariants, redis_state
from tests.stateful.machine.actors import World
from tests.stateful.machine.base import Base
from tests.stateful.machine.rules import Rules
from tests.stateful.machine.strategies import ENDINGS, SECOND, TIMES, Request
from tests.stateful.model.values import Place

WRITING = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}
LOADING = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0", "aof-load-truncated": "yes"}
SCRIPTS = {
    "enqueue",
    "enqueue_one",
    "promote",
    "settle_and_claim",
    "heartbeat",
    "reclaim",
    "cancel",
    "reschedule",
    "move",
    "requeue",
    "discard",
}
_answer = ScriptCall.result


class StepLog:
    """The length of the file and the contents of Redis after each script."""

    def __init__(self, client: Redis, keys: Keys, file: Path) -> None:
        self._client, self._keys, self._file = client, keys, file
        self.sizes: list[int] = []
        self.states: list[dict[str, Any]] = []
        self.scripts: list[str] = []
        self.write("the start")

    def write(self, script: str) -> None:
        """Record the current state. Redis has written the effects of each answered script to the file."""
        self.sizes.append(self._file.stat().st_size)
        self.states.append(redis_state.read(self._client, self._keys))
        self.scripts.append(script)

    def answer(self, call: ScriptCall) -> Any:
        """Run a script and record the state after it."""
        try:
            return _answer(call)
        finally:
            self.write(call.script.name)

    def at(self, size: int) -> int:
        """Return the number of the last script that is complete in a file of this length."""
        return bisect_right(self.sizes, size) - 1


def take_steps(machine: Base, rng: random.Random, count: int) -> None:
    """Run every transition in random order. The model of the state machine checks each."""
    model = machine.world.model
    for _ in range(count):
        worker = machine.worker(rng.randrange(2))
        match rng.randrange(12):
            case 0 | 1 | 2:
                machine.enqueue([draw_request(rng) for _ in range(rng.randint(1, 4))])
            case 3 | 4:
                endings = rng.choices(ENDINGS, k=rng.randint(0, 4))
                worker.exchange(rng.randint(0, 5), endings=endings)
            case 5:
                worker.heartbeat(worker.held[:3])
            case 6:
                for operation in ("cancel", "reschedule", "move"):
                    if raw_id := machine.pick(rng.randrange(16)):
                        machine.change(operation, raw_id)
            case 7 if model.at(Place.DEAD):
                dead = machine.pick_at(Place.DEAD, rng.randrange(16))
                machine.requeue_one(dead.raw_id, dead.score, rng.choice([0, SECOND]))
            case 8 if model.at(Place.DEAD):
                dead = machine.pick_at(Place.DEAD, rng.randrange(16))
                machine.discard_one(dead.raw_id, dead.score)
            case 9:
                # The worker is dead, its leases expire, and its jobs are reclaimed.
                worker.restart()
                machine.world.advance_to(model.now + 31 * SECOND)
                machine.dispatchers[0].step()
                machine.dispatchers[0].apply_judged()
            case 10:
                worker.exchange(8, endings=[OutcomeKind.FAILED] * 8)
            case _:
                machine.advance_to_next(1)
                machine.dispatchers[1].step()
        machine.check()


def draw_request(rng: random.Random) -> Request:
    return Request(
        queue=rng.choice(["default", "mail"]),
        when=rng.choice([("now", 0), *TIMES]),
        key=rng.choice([None, None, "k", "l"]),
        max_attempts=rng.randint(1, 3),
        large=rng.random() < 0.1,
    )


@dataclass
class Written:
    """An append-only file, and the states while it grew."""

    server: LocalRedisServer
    #: The file's path, relative to the server's folder.
    file: Path
    step_log: StepLog
    keys: Keys

    def wrong_cuts(self, cuts: Sequence[int]) -> list[str]:
        """Load the file at each of these lengths; returns the cuts whose state differs from the recorded one."""
        with ExitStack() as stack:
            loaders = [stack.enter_context(LocalRedisServer(server=self.server._server, options=LOADING)) for _ in "ab"]
            for loader in loaders:
                loader.kill()
                shutil.copytree(self.server.folder, loader.folder, dirs_exist_ok=True, ignore=_sockets)
            with ThreadPoolExecutor(len(loaders)) as pool:
                parts = [cuts[number :: len(loaders)] for number in range(len(loaders))]
                found = list(pool.map(self._load, loaders, parts))
        assert sum(len(part) for part in parts) == len(cuts) > 0
        return [fault for faults in found for fault in faults]

    def _load(self, loader: LocalRedisServer, cuts: Sequence[int]) -> list[str]:
        whole, faults = (self.server.folder / self.file).read_bytes(), []
        apis = ShardApis(loader.url)
        for cut in cuts:
            (loader.folder / self.file).write_bytes(whole[:cut])
            loader.start()
            with loader.client(protocol=2) as client:
                found = redis_state.read(client, self.keys)
            findings = list(ConsistencyCheck(apis.shard).walk())
            apis.close()
            loader.kill()
            invariants.check_each_job_is_in_one_place(found, self.keys)
            assert findings == [], f"cut at {cut}"
            number = self.step_log.at(cut)
            if found != self.step_log.states[number]:
                faults.append(f"cut at {cut}: not what it was after {self.step_log.scripts[number]}, script {number}")
        return faults


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (Path(folder) / name).is_dir() and "aof" not in name}


@pytest.fixture
def write(
    start_redis: Callable[..., LocalRedisServer], monkeypatch: pytest.MonkeyPatch
) -> Callable[[random.Random, int], Written]:
    """Return a function that runs that many transitions and returns the file of the server."""

    def written(rng: random.Random, steps: int) -> Written:
        server = start_redis(options=WRITING)
        [file] = [path for path in server.folder.rglob("appendonly.aof*") if path.name.endswith(("incr.aof", "ly.aof"))]
        with server.client(protocol=2) as client, monkeypatch.context() as patch:
            config = Config(redis=RedisConfig.read(server.url), dispatcher=DispatcherConfig(dead_max_count=20))
            world = World(client, config)
            # The clock does not advance between the call and the send, so that the delay counts from both.
            patch.setattr(world.clock, "steady", lambda: 0.0)
            machine = Rules(world)
            step_log = StepLog(client, machine.world.keys, file)
            patch.setattr(ScriptCall, "result", lambda call: step_log.answer(call))
            take_steps(machine, rng, steps)
        server.kill()
        assert step_log.sizes == sorted(step_log.sizes)
        assert step_log.sizes[-1] == file.stat().st_size
        return Written(server, file.relative_to(server.folder), step_log, machine.world.keys)

    return written


def test_truncated_file_loads_as_state_after_some_script(
    write: Callable[[random.Random, int], Written], seed: int
) -> None:
    rng = random.Random(seed)
    written = write(rng, 300)
    step_log = written.step_log
    assert {*step_log.scripts[1:]} == SCRIPTS
    # A script takes effect with its last byte.
    ends = rng.sample(step_log.sizes[1:], 20)
    cuts = [*ends, *(end - 1 for end in ends), *rng.choices(range(step_log.sizes[0], step_log.sizes[-1]), k=80)]
    assert written.wrong_cuts(cuts) == []


@pytest.mark.slow
def test_file_truncated_at_every_byte_loads_as_state_after_some_script(
    write: Callable[[random.Random, int], Written], seed: int
) -> None:
    written = write(random.Random(seed), 1_000)
    sizes = written.step_log.sizes
    # All bytes of the file would take hours. The default is the bytes of the last scripts.
    count = sized("AOF_CUTS", 20_000)
    assert written.wrong_cuts(range(max(0, sizes[-1] - count), sizes[-1] + 1)) == []
