"""Sentinel group: a master with replicas and Sentinels of this machine for tests."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from django_delayq.testing.local_redis import LocalRedisServer
from tests.servers.certificates import Certificates
from tests.servers.server_group import ServerGroup
from tests.servers.tls_ports import start_with_tls
from tests.subprocesses import PATIENCE, until

#: What the Sentinels call the master.
SERVICE = "mymaster"
#: Milliseconds after which a Sentinel takes a silent master for dead.
DOWN_AFTER = 500
_PASSWORD_OPTIONS = ("requirepass", "masterauth")


class LocalSentinel(LocalRedisServer):
    """One Sentinel. It keeps what it knows in a file of its own."""

    def __init__(self, *, lines: str, **server: Any) -> None:
        super().__init__(**server)
        self._lines = lines

    def _command(self) -> list[str]:
        path = self.folder / "sentinel.conf"
        if not path.exists():
            path.write_text(self._lines)
        program, *options = super()._command()
        # A Sentinel has no data to save.
        at = options.index("--appendonly")
        del options[at : at + 2]
        at = options.index("--save")
        del options[at : at + 2]
        return [program, str(path), "--sentinel", *options]


class SentinelGroup(ServerGroup):
    """The servers run from the `with` statement until its end."""

    def __init__(
        self,
        *,
        server: Path | None = None,
        replicas: int = 2,
        options: Mapping[str, str] | None = None,
        password: str = "",
        sentinel_password: str = "",
        tls: Certificates | None = None,
    ) -> None:
        """`options` are those of the master and the replicas. With `tls` all of them announce TLS ports."""
        self._program, self.replicas = server, replicas
        self._options = {"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"} | dict(options or {})
        self._options |= dict.fromkeys(_PASSWORD_OPTIONS, password) if password else {}
        self.password, self.sentinel_password = password, sentinel_password
        self._tls = tls
        #: The port of each server that clients and other servers use.
        self._ports: dict[LocalRedisServer, int] = {}
        super().__init__()
        self.servers: list[LocalRedisServer] = []
        self.sentinels: list[LocalRedisServer] = []

    def _start_all(self) -> None:
        """Start everything and return when the Sentinels know each other and the replicas."""
        for index in range(1 + self.replicas):
            primary = {"replicaof": f"127.0.0.1 {self.port_of(self.servers[0])}"} if index else {}
            self.servers.append(self._start(LocalRedisServer, self._options | primary))
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.port_of(self.servers[0])} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            # A failover that fails is tried again after twice this time.
            f"sentinel failover-timeout {SERVICE} 2000",
            *([f"sentinel auth-pass {SERVICE} {self.password}"] if self.password else []),
            *([f"sentinel sentinel-pass {self.sentinel_password}"] if self.sentinel_password else []),
        ]
        options = {"requirepass": self.sentinel_password} if self.sentinel_password else {}
        for _ in range(3):
            text = "\n".join(lines) + "\n"
            self.sentinels.append(self._start(partial(LocalSentinel, lines=text), options))
        self.wait_until_ready()

    @property
    def setting(self) -> dict[str, Any]:
        """The setting REDIS of a project that uses this group."""
        tls = {"ssl": True, **self._tls.client} if self._tls else {}
        password = {"password": self.password} if self.password else {}
        of_sentinels = tls | ({"password": self.sentinel_password} if self.sentinel_password else {})
        return {
            "sentinels": [("127.0.0.1", self.port_of(sentinel)) for sentinel in self.sentinels],
            "service": SERVICE,
            **tls,
            **password,
            **({"sentinel_kwargs": of_sentinels} if of_sentinels else {}),
        }

    def port_of(self, server: LocalRedisServer) -> int:
        """Return the port of a server or a Sentinel that clients use."""
        return self._ports[server]

    def master(self, *, of: int = 0) -> LocalRedisServer:
        """Return the master, as a Sentinel says: the first one, or the one of that number."""
        _, port = self.ask("GET-MASTER-ADDR-BY-NAME", SERVICE, sentinel=of)
        return next(server for server in self.servers if self.port_of(server) == int(port))

    def ask(self, *command: Any, sentinel: int = 0) -> Any:
        """Return the reply of a Sentinel to a command that follows the word SENTINEL."""
        options = self.setting.get("sentinel_kwargs", {})
        with Redis(host="127.0.0.1", port=self.port_of(self.sentinels[sentinel]), protocol=2, **options) as client:
            # Not parsed: the library knows these commands by their first two words.
            connection = client.connection_pool.get_connection()
            try:
                connection.send_command("SENTINEL", *command)
                return connection.read_response()
            finally:
                client.connection_pool.release(connection)

    def client(self, server: LocalRedisServer) -> Redis:
        """Return a client of a server; the caller closes it."""
        return server.client(protocol=2, password=self.password or None, socket_timeout=10)

    def wait_until_ready(self) -> None:
        """Wait until the Sentinels know each other and as many replicas as there are, all connected."""
        self._until(lambda: all(map(self._is_ready, range(len(self.sentinels)))), "the Sentinels know all servers")

    def wait_until_replicated(self) -> None:
        """Wait until all other servers follow the master."""
        self._until(lambda: self._following() == len(self.servers) - 1, "all replicas follow the master")

    def rejoin(self, server: LocalRedisServer) -> None:
        """Start a killed server again, as a replica of the master.

        The Sentinels make it one, too, after ten seconds, and on a busy machine after a minute.
        """
        server.restart()
        with self.client(server) as client:
            client.replicaof("127.0.0.1", str(self.port_of(self.master())))

    def fail_over(self, *, by: int = 0) -> LocalRedisServer:
        """Make a Sentinel promote a replica, and return it once the Sentinel names it."""
        before = self.master(of=by)
        self._until(lambda: self._accepts_failover(by), "the Sentinels know a replica that can be promoted")
        self._until(lambda: self.master(of=by) is not before, "another master is named")
        return self.master(of=by)

    def _accepts_failover(self, sentinel: int) -> bool:
        try:
            self.ask("FAILOVER", SERVICE, sentinel=sentinel)
        except ResponseError:
            return False
        return True

    def _following(self) -> int:
        """Return the number of replicas that have the data of the master."""
        with self.client(self.master()) as client:
            found = client.info("replication")
            replicas = [found[name] for name in found if name.startswith("slave") and name[5:].isdigit()]
            return sum(each["state"] == "online" for each in replicas)

    def _is_ready(self, index: int) -> bool:
        found = self.ask("MASTER", SERVICE, sentinel=index)
        facts = dict(zip(found[::2], found[1::2], strict=True))
        replicas = self.ask("REPLICAS", SERVICE, sentinel=index)
        states = [dict(zip(each[::2], each[1::2], strict=True)) for each in replicas]
        return (
            facts[b"flags"] == b"master"
            and int(facts[b"num-other-sentinels"]) == len(self.sentinels) - 1
            and sum(each[b"master-link-status"] == b"ok" and each[b"flags"] == b"slave" for each in states)
            == len(self.servers) - 1
        )

    def _start(self, kind: Callable[..., LocalRedisServer], options: Mapping[str, str]) -> LocalRedisServer:
        if self._tls:
            with_tls = {**options, **self._tls.server_options, "tls-replication": "yes"}
            server, port = start_with_tls(
                lambda port: kind(server=self._program, port=0, options={**with_tls, "tls-port": str(port)})
            )
        else:
            server = kind(server=self._program, port=0, options=options).start()
            port = server.port or 0
        self._ports[self._stack.enter_context(server)] = port
        return server

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what=what, patience=PATIENCE, details=lambda: str(self.ask("MASTERS")))
