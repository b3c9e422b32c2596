"""Shard: one Redis and one hash tag, and what every API of a shard needs to run scripts and commands there."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from redis.exceptions import NoScriptError

from django_delayq.clock import SECOND_US, Clock
from django_delayq.conf.config import Config
from django_delayq.exceptions import OtherLayout
from django_delayq.job.layout import Layout, Place
from django_delayq.job.security.encryption import RESULT, Cipher
from django_delayq.job.security.signing import BodySigner
from django_delayq.store.client.blocking_listener import BlockingListener
from django_delayq.store.client.reading import ReadCall, Reading, packed, run_alone
from django_delayq.store.client.replication import Replication
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.keys import Keys, decode_queue
from django_delayq.store.nodes.errors import with_store_errors
from django_delayq.store.nodes.node import Node
from django_delayq.store.nodes.resp import Part, encode
from django_delayq.store.routing.route import Route

T = TypeVar("T")

_NOTIFY = Script("notify")
#: How many times a call follows a layout that changes meanwhile.
TRIES = 10


class KnownLayout:
    """The layout that this process knows; all shards of a store have the same object."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        #: Follows the layout that a shard knows, or lets it know this one. `Layouts` sets it.
        self.follow: Callable[[OtherLayout, int], None] = lambda error, index: None

    def at_place(self, routing: bytes, call: Callable[[Place, Layout], T | None]) -> T | None:
        """Make a call in the shards that may have something of a routing value, in their order, until one replies.

        `call` returns None if nothing of the value is left there. After its `OtherLayout` the places of the later
        layout are asked. Returns None if the layout changes ten times meanwhile.
        """
        for _ in range(TRIES):
            layout = self.layout
            for place in layout.places(routing):
                try:
                    reply = call(place, layout)
                except OtherLayout as error:
                    self.follow(error, place.shard)
                    break
                if reply is not None:
                    return reply
        return None


class Shard:
    """Index, settings, connections, keys and clock of a share of the jobs. Thread-safe."""

    def __init__(
        self,
        *,
        index: int,
        config: Config,
        signer: BodySigner,
        cipher: Cipher,
        route: Route,
        clock: Clock,
        known: KnownLayout | None = None,
        sibling: "Callable[[int], Shard] | None" = None,
    ) -> None:
        """`sibling` returns a shard of the same store, by its number."""
        self.index = index
        self.config = config
        self.signer = signer
        self.cipher = cipher
        self.route = route
        self.keys = Keys(config.prefix, index)
        self.clock = clock
        #: What calls of producers wait for.
        self._replication = self._make_replication() if route.for_producers and config.wait_replicas else None
        self._known = known or KnownLayout(Layout.of(config.shards))
        self.sibling = sibling or (lambda index: self)

    @property
    def layout(self) -> Layout:
        """The layout of the shards, as this process knows it."""
        return self._known.layout

    def follow(self, error: OtherLayout) -> None:
        """Follow the layout that this shard knows, or let it know a later one, after it refused a call."""
        self._known.follow(error, self.index)

    def at_place(self, routing: bytes, call: Callable[[Place, Layout], T | None]) -> T | None:
        """Make a call in the shard that has something of a routing value. See `KnownLayout.at_place()`."""
        return self._known.at_place(routing, call)

    def run(
        self,
        script: Script,
        args: Sequence[Part],
        *,
        queue: str | None = None,
        more_keys: Sequence[str] = (),
        can_wait: bool = False,
        **named_keys: str,
    ) -> Any:
        """Run a script and return its reply. See `call()` for the arguments. Raises `StoreError`s and `JobRefused`.

        A call that `can_wait` goes out in one write with those of other shards of the same server.
        """
        call = self.call(script, args, queue=queue, more_keys=more_keys, **named_keys)
        return call.result_with_others() if can_wait and self.layout.served > 1 else call.result()

    def call(
        self,
        script: Script,
        args: Sequence[Part],
        *,
        queue: str | None = None,
        more_keys: Sequence[str] = (),
        **named_keys: str,
    ) -> ScriptCall:
        """Return the call of a script, not sent yet; the clock is put before `args`.

        Each key that the script names is looked up in `named_keys`, then in the keys of `queue`, then in the catalogue.
        `named_keys` that the script does not name are ignored. `more_keys` follow.
        """
        fixed_keys: tuple[str, ...] = ()
        if named_keys:
            if queue is not None:
                named_keys = {**self.keys.named(queue), **named_keys}
            keys = [named_keys[name] if name in named_keys else self.keys(name) for name in script.key_names]
            more_keys = [*keys, *more_keys]
        else:
            fixed_keys = _fixed_keys(self.keys, script.key_names, queue)
        replication = self._replication if script.waits_for_replicas else None
        all_args = [self.clock.argument(), *args]
        return ScriptCall(script, self.route, fixed_keys, more_keys, all_args, replication=replication)

    def seal_result(self, raw_id: bytes, result: bytes) -> bytes:
        """Return the result of a job as a script keeps it: encrypted if encryption is on. b"" is none, and stays so."""
        return self.cipher.seal(raw_id, RESULT, result) if result else b""

    def read(self, reading: Reading[T]) -> T:
        """Return what a reading of this shard reads. Raises `StoreError`s."""
        return run_alone(reading, self.read_all)

    def read_all(self, calls: Sequence[ReadCall]) -> list[Any]:
        """Return the replies of calls that only read, in one round trip, not atomically. Raises `StoreError`s."""

        def read() -> list[Any]:
            try:
                return self.route.read_all([packed(call) for call in calls])
            except NoScriptError:
                return [
                    call.result() if isinstance(call, ScriptCall) else self.route.read_all([call])[0] for call in calls
                ]

        scripts = {call.script for call in calls if isinstance(call, ScriptCall)}
        # Steps have calls of one script.
        source_line = scripts.pop().source_line if len(scripts) == 1 else None
        return self._with_store_errors(read, source_line=source_line) if calls else []

    # Commands use the connections of the scripts, not the client's pool: after a failover a connection there may still
    # lead to the old server.
    def execute(self, *command: Part) -> Any:
        """Run one command, once, and return its raw reply. Raises `StoreError`s."""
        return self.execute_all([command])[0]

    def execute_with_others(self, *command: Part) -> Any:
        """Run one command in one write with those of other shards, a few milliseconds later. See `execute()`."""
        if self.layout.served == 1:
            return self.execute(*command)
        packed = encode(*command)
        return self._with_store_errors(lambda: self.route.read_shared(packed))

    def execute_all(self, commands: Sequence[Sequence[Part]]) -> list[Any]:
        """Run commands in one round trip, not atomically, and return their raw replies. Raises `StoreError`s.

        They must be safe to repeat.
        """
        encoded = [encode(*parts) for parts in commands]
        return self._with_store_errors(lambda: self.route.read_all(encoded)) if encoded else []

    def scan(self, key: str, *, command: str = "HSCAN", batch: int = 500) -> Iterator[list[tuple[bytes, Any]]]:
        """Yield the pairs of a hash, or with ZSCAN of a sorted set, in batches. One round trip a batch, O(1) a pair.

        A pair that exists during the whole scan comes at least once. Raises `StoreError`s.
        """
        cursor = b"0"
        while True:
            cursor, found = self.execute(command, key, cursor, "COUNT", batch)
            pairs = list(zip(found[::2], found[1::2], strict=True))
            # Redis returns a small key as a whole, whatever COUNT is.
            for at in range(0, len(pairs), batch):
                yield pairs[at : at + batch]
            if cursor == b"0":
                return

    def _with_store_errors(self, run: Callable[[], T], *, source_line: Callable[[str], str] | None = None) -> T:
        user = self.route.topology.connections.user
        return with_store_errors(run, place=self.route.place, user=user, source_line=source_line)

    def now_us(self, time: Sequence[bytes]) -> int:
        """Return the µs since the epoch of a reply to TIME; with a clock of a test, the time of that clock."""
        given = self.clock.argument()
        return given if isinstance(given, int) else int(time[0]) * SECOND_US + int(time[1])

    def blocking_listener(self) -> BlockingListener:
        """Return a new listener for this shard's notifications, on a connection of its own."""
        return BlockingListener(self.route)

    def notify(self, queues: Sequence[str]) -> None:
        """Notify a worker of each of these queues that has ready jobs; no queues: a worker of all queues.

        One round trip, O(1) a queue.
        """
        self.run(_NOTIFY, [], more_keys=[key for queue in queues for key in self.keys.served(queue)])

    def send_on_notification(self) -> None:
        """Notify a worker of all queues, but no worker of a queue filter. One round trip, O(1)."""
        self.run(_NOTIFY, [], notify=self.keys("notify_sent_on"))

    def read_queues(self) -> list[str]:
        """Return the names of all queues that have jobs or had some in the last nine minutes; sorted."""
        return self._read_names("ZUNION", 2, self.keys("queues"), self.keys("next_due"))

    def read_served_queues(self) -> list[str]:
        """Return those of them that may have ready jobs, which a worker of all queues serves; sorted."""
        return self._read_names("ZRANGE", self.keys("queues"), 0, -1)

    def _read_names(self, *command: Part) -> list[str]:
        return sorted(map(decode_queue, self.execute(*command)))

    @cached_property
    def label(self) -> str:
        """Server and number of the shard, for people."""
        return f"{self.config.redis.display_url} shard {self.index}"

    def _make_replication(self) -> Replication:
        config = self.config
        return Replication(
            config.wait_replicas,
            timeout=config.wait_timeout,
            call_timeout=config.enqueue_timeout,
            key=self.keys("replicated"),
        )

    @property
    def node(self) -> Node:
        """The server that has the shard, as far as this process knows. Raises `StoreError`s."""
        return self._with_store_errors(lambda: self.route.node)

    @property
    def client(self) -> Any:
        """A client of the library for the server that has the shard now. Raises `StoreError`s."""
        return self._with_store_errors(lambda: self.route.cache.client)


# Cached for each script and queue: a process calls few scripts and names few queues.
@lru_cache(maxsize=4096)
def _fixed_keys(keys: Keys, names: tuple[str, ...], queue: str | None) -> tuple[str, ...]:
    named = {} if queue is None else keys.named(queue)
    return tuple(named.get(name) or keys(name) for name in names)
