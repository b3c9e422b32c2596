"""Proxy: a TCP port in front of a Redis server whose network fails on command, or kills whoever asks too often.

The network is an event loop in a thread of its own. Every fault is called from the test's thread and has taken hold
when the call returns.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.chaos.resp import Values, command_of

_CHUNK = 65_536
#: Seconds until a fault must have taken hold.
_PATIENCE = 30.0


@dataclass(eq=False)
class _Link:
    """A client's connection, and ours to the server on its behalf."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    #: Requests not answered yet, in order: the command, and the kill that waits for the answer.
    asked: deque[tuple[str, Callable[[], object] | None]]

    def cut(self) -> None:
        """End both connections by RST: what is under way is lost."""
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            # A unix socket (the server's) has no RST.
            if sock is not None and sock.family == socket.AF_INET and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """A proxy in front of the server at `url`, from entering a `with` block to its end."""

    def __init__(self, url: str) -> None:
        self._upstream = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._links: set[_Link] = set()
        self._tasks: set[Any] = set()
        self._door: socket.socket | None = None
        self._port = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay, self._jitter = 0.0, 0.0
        self._dropping = self._closing = False
        self._cut: tuple[int, str] | None = None
        #: Set once `kill` of `kill_at` has returned.
        self.killed = threading.Event()
        #: Requests until the kill, what kills, and whether after that request.
        self._countdown, self._after = 0, False
        self._kill: Callable[[], object] = self.killed.set
        #: Whole requests seen from clients so far.
        self.requests = 0
        #: Their commands, in order; of a script also its SHA.
        self.commands: list[str] = []
        #: Replies that were swallowed or cut so far.
        self.lost_replies = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    @property
    def url(self) -> str:
        """The URL for DELAYQ["REDIS"]; the same as long as the proxy lives."""
        where = self._upstream
        database = parse_qs(where.query).get("db", ["0"])[0] if where.scheme == "unix" else where.path.strip("/")
        return f"redis://127.0.0.1:{self._port}/{database or 0}"

    @property
    def connections(self) -> int:
        """How many there are. Once a client's are gone, all it ever sent has been passed on."""
        return len(self._links)

    # Faults

    def lead_to(self, url: str) -> None:
        """Lead new connections to another server, as a name does after a failover; those there are stay."""
        self._upstream = urlsplit(url)

    def cut(self) -> None:
        """End all connections by RST; new ones are accepted."""
        self._soon(self._cut_all)

    def refuse(self) -> None:
        """Refuse new connections; those there are stay."""
        self._do(self._listen(False))

    def accept(self) -> None:
        """Accept connections again."""
        self._do(self._listen(True))

    def hold(self) -> None:
        """Let no byte pass either way; connections stay, new ones are accepted and as silent."""
        self._soon(self._flowing.clear)

    def release(self) -> None:
        """Let pass what was held back, and all that follows."""
        self._soon(self._flowing.set)

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        """Let bytes take so many seconds, give or take `jitter`, each way and in order."""
        self._delay, self._jitter = seconds, jitter

    def drop_replies(self) -> None:
        """Let requests pass and swallow every reply."""
        self._dropping = True

    def cut_reply_after(self, size: int, *, of: str = "") -> None:
        """Let `size` bytes of the next reply pass, to a request that begins so, then end its connection by RST."""
        self._cut = (size, of)

    def mend(self) -> None:
        """Be an ordinary network again."""
        self._delay, self._jitter, self._dropping, self._cut, self._countdown = 0.0, 0.0, False, None, 0
        self.release()
        self.accept()

    def kill_at(self, number: int, kill: Callable[[], object], *, after: bool) -> None:
        """Call `kill` at the `number`-th request from now on, counted over all connections.

        Before Redis sees it, or after Redis ran it, when its whole reply has arrived here; the client gets neither. A
        blocking pop counts like any request: killed after it means after its reply, so perhaps never. `kill` runs in
        the proxy's thread, while no byte passes.
        """
        if number < 1:
            raise ValueError(f"kill_at() counts requests from 1, got {number}")
        self.killed.clear()
        self._kill, self._after, self._countdown = kill, after, number

    # The loop's thread

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _soon(self, change: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(change)
        self._do(asyncio.sleep(0))

    def _cut_all(self) -> None:
        for link in self._links:
            link.cut()

    async def _listen(self, wanted: bool) -> None:
        if wanted and self._door is None:
            self._door = socket.create_server(("127.0.0.1", self._port))
            self._door.setblocking(False)
            self._port = self._door.getsockname()[1]
            self._loop.add_reader(self._door, self._accept, self._door)
        elif not wanted and self._door is not None:
            self._loop.remove_reader(self._door)
            self._door.close()
            self._door = None

    def _accept(self, door: socket.socket) -> None:
        # Not asyncio's server or sock_accept(): ended in the middle of an accept, they forget the connection unclosed.
        with contextlib.suppress(BlockingIOError):
            connection, _ = door.accept()
            connection.setblocking(False)
            self._tasks.add(self._loop.create_task(self._serve(connection)))

    async def _close(self) -> None:
        await self._listen(False)
        self._closing, self._delay = True, 0.0
        self._flowing.set()
        # Not cancelled: a task that has not begun yet would never close its connection.
        until = self._loop.time() + _PATIENCE / 2
        while (others := asyncio.all_tasks() - {asyncio.current_task()}) and self._loop.time() < until:
            self._cut_all()
            await asyncio.wait(others, timeout=0.01)
        # An aborted connection gives its socket back in a later round of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        link = None
        try:
            answers, server = await self._connect()
            link = _Link(writer, server, deque())
            self._links.add(link)
            if self._closing:
                raise ConnectionAbortedError
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._ask(reader, link))
                pumps.create_task(self._answer(answers, link))
        except* OSError:
            # The server is away, or one direction ended, which ends both: half a connection is of no use here.
            pass
        finally:
            if link is not None:
                self._links.discard(link)
                link.server.close()
            writer.close()
            self._tasks.discard(asyncio.current_task())

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(self._upstream.path))
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    async def _ask(self, reader: asyncio.StreamReader, link: _Link) -> None:
        requests = Values()
        while data := await reader.read(_CHUNK):
            await self._travel()
            for request in requests.feed(data):
                await self._pass_request(request, link)
        raise ConnectionAbortedError

    async def _pass_request(self, request: bytes, link: _Link) -> None:
        self.requests += 1
        self.commands.append(command_of(request))
        self._countdown -= 1
        if self._countdown == 0 and not self._after:
            self._strike(self._kill)
        link.asked.append((self.commands[-1], self._kill if self._countdown == 0 else None))
        link.server.write(request)
        await link.server.drain()

    async def _answer(self, reader: asyncio.StreamReader, link: _Link) -> None:
        replies = Values()
        while data := await reader.read(_CHUNK):
            for reply in replies.feed(data):
                command, kill = link.asked.popleft()
                if kill is not None:
                    self._strike(kill)
                if self._dropping:
                    self.lost_replies += 1
                    continue
                if self._cut is not None and command.startswith(self._cut[1]):
                    (size, _), self._cut = self._cut, None
                    self.lost_replies += 1
                    link.client.write(reply[:size])
                    link.cut()
                    raise ConnectionAbortedError
                await self._travel()
                link.client.write(reply)
                await link.client.drain()
        raise ConnectionAbortedError

    async def _travel(self) -> None:
        if self._delay:
            await asyncio.sleep(max(0.0, self._delay + random.uniform(-self._jitter, self._jitter)))
        await self._flowing.wait()

    def _strike(self, kill: Callable[[], object]) -> NoReturn:
        kill()
        self.killed.set()
        # Ends the connection; what else had arrived on it was never sent, or never read.
        raise ConnectionAbortedError
