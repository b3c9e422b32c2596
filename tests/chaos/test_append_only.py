"""Power loss: the append-only file cut at any byte; what is loaded is what was true after some step.

Redis writes all that one script writes as one transaction (MULTI … EXEC) and drops an unfinished one when it loads the
file: this is what makes a step whole there too. The long form cuts at every byte of the last steps.
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
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.options import sized
from tests.shard_apis import ShardApis
from tests.stateful import invariants, redis_state
from tests.stateful.actors import World
from tests.stateful.base import Base
from tests.stateful.rules import Rules
from tests.stateful.strategies import ENDINGS, SECOND, TIMES, Request
from tests.stateful.values import Place

WRITING = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}
LOADING = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0", "aof-load-truncated": "yes"}
SCRIPTS = {
    "enqueue",
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


class Diary:
    """After each script: how long the file was, and all that Redis held."""

    def __init__(self, client: Redis, keys: Keys, file: Path) -> None:
        self._client, self._keys, self._file = client, keys, file
        self.sizes: list[int] = []
        self.pictures: list[dict[str, Any]] = []
        self.scripts: list[str] = []
        self.write("the start")

    def write(self, script: str) -> None:
        """Take down what is true now: whatever was answered is in the file."""
        self.sizes.append(self._file.stat().st_size)
        self.pictures.append(redis_state.read(self._client, self._keys))
        self.scripts.append(script)

    def answer(self, call: ScriptCall) -> Any:
        """Run a script and write."""
        try:
            return _answer(call)
        finally:
            self.write(call.script.name)

    def at(self, size: int) -> int:
        """Return the number of the last script that a file of this length has whole."""
        return bisect_right(self.sizes, size) - 1


def take_steps(ground: Base, chance: random.Random, count: int) -> None:
    """Take every transition, in any order; the machine's model checks each."""
    model = ground.world.model
    for _ in range(count):
        worker = ground.worker(chance.randrange(2))
        match chance.randrange(12):
            case 0 | 1 | 2:
                ground.enqueue([ask(chance) for _ in range(chance.randint(1, 4))])
            case 3 | 4:
                endings = chance.choices(ENDINGS, k=chance.randint(0, 4))
                worker.exchange(chance.randint(0, 5), endings=endings)
            case 5:
                worker.heartbeat(worker.held[:3])
            case 6:
                for operation in ("cancel", "reschedule", "move"):
                    if raw_id := ground.pick(chance.randrange(16)):
                        ground.change(operation, raw_id)
            case 7 if model.at(Place.DEAD):
                dead = ground.pick_at(Place.DEAD, chance.randrange(16))
                ground.requeue_one(dead.raw_id, dead.score, chance.choice([0, SECOND]))
            case 8 if model.at(Place.DEAD):
                dead = ground.pick_at(Place.DEAD, chance.randrange(16))
                ground.discard_one(dead.raw_id, dead.score)
            case 9:
                # The worker is gone, its leases lapse, and what it held is taken back.
                worker.restart()
                ground.world.turn_to(model.now + 31 * SECOND)
                ground.dispatchers[0].step()
                ground.dispatchers[0].carry_out()
            case 10:
                worker.exchange(8, endings=[OutcomeKind.FAILED] * 8)
            case _:
                ground.turn_to_next(1)
                ground.dispatchers[1].step()
        ground.check()


def ask(chance: random.Random) -> Request:
    return Request(
        queue=chance.choice(["default", "mail"]),
        when=chance.choice([("now", 0), *TIMES]),
        key=chance.choice([None, None, "k", "l"]),
        max_attempts=chance.randint(1, 3),
        large=chance.random() < 0.1,
    )


@dataclass
class Written:
    """A file, and what was true while it grew."""

    server: LocalRedisServer
    #: The file that grew, as named in its server's folder.
    file: Path
    diary: Diary
    keys: Keys

    def wrong_cuts(self, cuts: Sequence[int]) -> list[str]:
        """Load the file at each of these lengths; tell where it is not what the diary says of that moment."""
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
            findings = list(apis.store.consistency_check(apis.shard).walk())
            apis.close()
            loader.kill()
            invariants.check_each_job_is_in_one_place(found, self.keys)
            assert findings == [], f"cut at {cut}"
            number = self.diary.at(cut)
            if found != self.diary.pictures[number]:
                faults.append(f"cut at {cut}: not what it was after {self.diary.scripts[number]}, script {number}")
        return faults


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (Path(folder) / name).is_dir() and "aof" not in name}


@pytest.fixture
def write(
    start_redis: Callable[..., LocalRedisServer], monkeypatch: pytest.MonkeyPatch
) -> Callable[[random.Random, int], Written]:
    """Let a server write the file of so many steps."""

    def written(chance: random.Random, steps: int) -> Written:
        server = start_redis(options=WRITING)
        [file] = [path for path in server.folder.rglob("appendonly.aof*") if path.name.endswith(("incr.aof", "ly.aof"))]
        with server.client(protocol=2) as client, monkeypatch.context() as patch:
            config = Config(redis=RedisConfig.read(server.url), dispatcher=DispatcherConfig(dead_max_count=20))
            world = World(client, config)
            # A delay counts from the call; here it counts from the send.
            patch.setattr(world.clock, "steady", lambda: 0.0)
            ground = Rules(world)
            diary = Diary(client, ground.world.keys, file)
            patch.setattr(ScriptCall, "result", lambda call: diary.answer(call))
            take_steps(ground, chance, steps)
        server.kill()
        assert diary.sizes == sorted(diary.sizes)
        assert diary.sizes[-1] == file.stat().st_size
        return Written(server, file.relative_to(server.folder), diary, ground.world.keys)

    return written


def test_truncated_file_loads_as_state_after_some_script(
    write: Callable[[random.Random, int], Written], seed: int
) -> None:
    chance = random.Random(seed)
    written = write(chance, 300)
    diary = written.diary
    assert {*diary.scripts[1:]} == SCRIPTS
    # The last byte of a script is what makes it true.
    ends = chance.sample(diary.sizes[1:], 20)
    cuts = [*ends, *(end - 1 for end in ends), *chance.choices(range(diary.sizes[0], diary.sizes[-1]), k=80)]
    assert written.wrong_cuts(cuts) == []


@pytest.mark.slow
def test_file_truncated_at_every_byte_loads_as_state_after_some_script(
    write: Callable[[random.Random, int], Written], seed: int
) -> None:
    written = write(random.Random(seed), 1_000)
    sizes = written.diary.sizes
    # Every byte takes hours: by default those of the last steps.
    count = sized("AOF_CUTS", 20_000)
    assert written.wrong_cuts(range(max(0, sizes[-1] - count), sizes[-1] + 1)) == []
