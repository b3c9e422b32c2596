"""Proxy: a TCP port in front of a Redis server. Its network fails on command, and it can kill a process at a request.

The proxy is an event loop in its own thread. Tests call the faults from their thread, and each fault is in effect when
its call returns.
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

from tests.chaos.network.resp import RespSplitter, command_of

_CHUNK = 65_536
#: The most seconds until a fault is in effect.
_PATIENCE = 30.0


@dataclass(eq=False)
class _Link:
    """A client's connection, and the proxy's connection to the server for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    #: Requests without a reply, in order: the command, and the kill that waits for the reply.
    unanswered: deque[tuple[str, Callable[[], object] | None]]

    def cut(self) -> None:
        """Close both connections by RST. Bytes in flight are lost."""
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            # The server's side may be a unix socket, which has no RST.
            if sock is not None and sock.family == socket.AF_INET and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """A proxy in front of the server at `url`, for the duration of a `with` block."""

    def __init__(self, url: str) -> None:
        self._upstream = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._links: set[_Link] = set()
        self._tasks: set[Any] = set()
        self._listener: socket.socket | None = None
        self._port = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay, self._jitter = 0.0, 0.0
        self._dropping = self._closing = False
        self._cut: tuple[int, str] | None = None
        #: Set after the `kill` of `kill_at` has returned.
        self.killed = threading.Event()
        #: Requests until the kill, whether it comes after that request, and the function that kills.
        self._countdown, self._after = 0, False
        self._kill: Callable[[], object] = self.killed.set
        #: Whole requests of clients so far.
        self.requests = 0
        #: Their commands, in order. For a script, the SHA follows.
        self.commands: list[str] = []
        #: Replies that were dropped or cut so far.
        self.lost_replies = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    @property
    def url(self) -> str:
        """The URL for DELAYQ["REDIS"]. It stays the same as long as the proxy lives."""
        where = self._upstream
        database = parse_qs(where.query).get("db", ["0"])[0] if where.scheme == "unix" else where.path.strip("/")
        return f"redis://127.0.0.1:{self._port}/{database or 0}"

    @property
    def connections(self) -> int:
        """The number of connections. After a client's last connection is gone, all its requests have been forwarded."""
        return len(self._links)

    # Faults

    def set_upstream(self, url: str) -> None:
        """Connect new clients to another server, as DNS does after a failover. Old connections stay."""
        self._upstream = urlsplit(url)

    def cut(self) -> None:
        """Close all connections by RST. New ones are accepted."""
        self._call(self._cut_all)

    def refuse(self) -> None:
        """Refuse new connections. Old ones stay."""
        self._run(self._listen(False))

    def accept(self) -> None:
        """Accept connections again."""
        self._run(self._listen(True))

    def hold(self) -> None:
        """Forward no byte in either direction. Connections stay, and new ones are accepted but silent."""
        self._call(self._flowing.clear)

    def release(self) -> None:
        """Forward everything that was held, and all that follows."""
        self._call(self._flowing.set)

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        """Delay bytes by that many seconds, plus or minus `jitter`, in each direction and in order."""
        self._delay, self._jitter = seconds, jitter

    def drop_replies(self) -> None:
        """Forward requests and drop every reply."""
        self._dropping = True

    def cut_reply_after(self, size: int, *, of: str = "") -> None:
        """Forward `size` bytes of the next reply to a command that starts with `of`, then cut its connection by RST."""
        self._cut = (size, of)

    def restore(self) -> None:
        """End all faults."""
        self._delay, self._jitter, self._dropping, self._cut, self._countdown = 0.0, 0.0, False, None, 0
        self.release()
        self.accept()

    def kill_at(self, number: int, kill: Callable[[], object], *, after: bool) -> None:
        """Call `kill` at the `number`-th request from now on, counted over all connections.

        The kill comes before Redis receives the request, or after Redis ran it and its whole reply has arrived here.
        The client receives no reply in either case. A blocking pop counts as a request: a kill after it waits for its
        reply, which may never come. `kill` runs in the proxy's thread, and no byte is forwarded meanwhile.
        """
        if number < 1:
            raise ValueError(f"kill_at() counts requests from 1, got {number}")
        self.killed.clear()
        self._kill, self._after, self._countdown = kill, after, number

    # The loop's thread

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _call(self, change: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(change)
        self._run(asyncio.sleep(0))

    def _cut_all(self) -> None:
        for link in self._links:
            link.cut()

    async def _listen(self, wanted: bool) -> None:
        if wanted and self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            self._listener.setblocking(False)
            self._port = self._listener.getsockname()[1]
            self._loop.add_reader(self._listener, self._accept, self._listener)
        elif not wanted and self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        # asyncio's server and sock_accept() leak the connection if they are cancelled during an accept.
        with contextlib.suppress(BlockingIOError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            self._tasks.add(self._loop.create_task(self._serve(connection)))

    async def _close(self) -> None:
        await self._listen(False)
        self._closing, self._delay = True, 0.0
        self._flowing.set()
        # Tasks are not cancelled: a task that has not started yet would never close its connection.
        until = self._loop.time() + _PATIENCE / 2
        while (others := asyncio.all_tasks() - {asyncio.current_task()}) and self._loop.time() < until:
            self._cut_all()
            await asyncio.wait(others, timeout=0.01)
        # The loop closes the socket of an aborted connection in a later iteration.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        link = None
        try:
            replies, server = await self._connect()
            link = _Link(writer, server, deque())
            self._links.add(link)
            if self._closing:
                raise ConnectionAbortedError
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._forward_requests(reader, link))
                pumps.create_task(self._forward_replies(replies, link))
        except* OSError:
            # The server is down, or one direction has ended. Both end then: half a connection has no use here.
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

    async def _forward_requests(self, reader: asyncio.StreamReader, link: _Link) -> None:
        requests = RespSplitter()
        while data := await reader.read(_CHUNK):
            await self._apply_delay()
            for request in requests.feed(data):
                await self._pass_request(request, link)
        raise ConnectionAbortedError

    async def _pass_request(self, request: bytes, link: _Link) -> None:
        self.requests += 1
        self.commands.append(command_of(request))
        self._countdown -= 1
        if self._countdown == 0 and not self._after:
            self._call_kill(self._kill)
        link.unanswered.append((self.commands[-1], self._kill if self._countdown == 0 else None))
        link.server.write(request)
        await link.server.drain()

    async def _forward_replies(self, reader: asyncio.StreamReader, link: _Link) -> None:
        replies = RespSplitter()
        while data := await reader.read(_CHUNK):
            for reply in replies.feed(data):
                command, kill = link.unanswered.popleft()
                if kill is not None:
                    self._call_kill(kill)
                if self._dropping:
                    self.lost_replies += 1
                    continue
                if self._cut is not None and command.startswith(self._cut[1]):
                    (size, _), self._cut = self._cut, None
                    self.lost_replies += 1
                    link.client.write(reply[:size])
                    link.cut()
                    raise ConnectionAbortedError
                await self._apply_delay()
                link.client.write(reply)
                await link.client.drain()
        raise ConnectionAbortedError

    async def _apply_delay(self) -> None:
        if self._delay:
            await asyncio.sleep(max(0.0, self._delay + random.uniform(-self._jitter, self._jitter)))
        await self._flowing.wait()

    def _call_kill(self, kill: Callable[[], object]) -> NoReturn:
        kill()
        self.killed.set()
        # Ends the connection. Other bytes on it are not forwarded.
        raise ConnectionAbortedError
