"""Server check: what it says of servers, each by itself and all together."""

from dataclasses import replace
from typing import Any

from django_delayq.exceptions import StoreAuthError, StoreUnavailable
from django_delayq.store.servers.server_check import CheckedServer, ServerCheck
from django_delayq.store.servers.server_info import ServerInfo

SOUND = (
    b"redis_version:7.2.4\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\nconnected_slaves:1\r\n"
    b"cluster_enabled:1\r\nused_memory:1000\r\nmaxmemory:0\r\n"
)
SETTINGS = {
    "appendfsync": "everysec",
    "save": "",
    "min-replicas-to-write": "1",
    "min-replicas-max-lag": "10",
    "cluster-require-full-coverage": "no",
}


def server(
    address: str,
    shards: int | tuple[int, ...] = 2,
    *,
    ahead_us: int = 0,
    within_us: int = 0,
    settings: dict[str, str] | None = None,
    **changes: str,
) -> CheckedServer:
    """Return a sound master of a cluster with changes of its INFO and settings."""
    lines = dict(line.split(":") for line in SOUND.decode().split()) | changes
    info = ServerInfo.of("\r\n".join(f"{name}:{value}" for name, value in lines.items()).encode())
    known: dict[str, Any] = {"ahead_us": ahead_us, "within_us": within_us}
    known["settings"] = SETTINGS if settings is None else settings
    numbers = tuple(range(shards)) if isinstance(shards, int) else shards
    return CheckedServer(address=address, shards=numbers, info=replace(info, **known))


def check(*servers: CheckedServer, has_failover: bool = True, wait_replicas: int = 0) -> ServerCheck:
    return ServerCheck(servers=servers, has_failover=has_failover, wait_replicas=wait_replicas)


def findings(*servers: CheckedServer, **options: Any) -> list[str]:
    found = check(*servers, **options)
    return [*found.fatal(), *found.errors(), *found.warnings(), *found.unchecked()]


def test_sound_servers_have_no_findings() -> None:
    assert findings(server("a:1"), server("b:1"), server("c:1")) == []


def test_every_server_is_looked_at_and_named() -> None:
    servers = [server("a:1"), server("b:1", maxmemory_policy="allkeys-lru"), server("c:1", redis_version="6.0.1")]
    one, other = check(*servers).fatal()
    assert one.startswith("b:1: ") and "noeviction" in one
    assert other.startswith("c:1: ") and "6.2 or later" in other
    [only] = check(servers[1]).fatal()
    assert only.startswith("The Redis server's maxmemory-policy is allkeys-lru")


def test_facts_of_one_of_several_servers_are_found() -> None:
    for changes, part in (
        ({"aof_enabled": "0"}, "append-only file"),
        ({"maxmemory": "1001"}, "% full"),
        ({"role": "slave"}, "is a replica"),
        ({"aof_last_write_status": "err"}, "failed to write"),
    ):
        [finding] = findings(server("a:1"), server("b:1", **changes))
        assert finding.startswith("b:1: ") and part in finding


def test_a_server_that_does_not_answer_is_an_error_with_its_shards() -> None:
    away = CheckedServer(address="b:1", shards=(1, 3), error=StoreUnavailable("Redis did not answer (b:1): refused"))
    found = check(server("a:1"), away)
    [error] = found.errors()
    assert error.startswith("b:1 does not answer: the jobs of its 2 shards (1, 3) wait until it is back.")
    assert error.endswith("refused")
    assert list(found.at_start()) == [error]
    assert found.shards == [0, 1]
    assert list(found.warnings()) == []


def test_a_server_that_refuses_and_shards_without_a_server_are_errors() -> None:
    refusing = CheckedServer(address="b:1", shards=(1,), error=StoreAuthError("wrong password"))
    homeless = CheckedServer(address="", shards=(2, 4), error=StoreUnavailable("no node serves slot 7"))
    one, other = check(server("a:1", 1), refusing, homeless).errors()
    assert one.startswith("b:1 refuses: the jobs of its shard (1) wait")
    assert other.startswith("No server has the shards 2, 4: assign their slots to a master.")


def test_a_server_without_shards_that_does_not_answer_is_a_warning() -> None:
    idle = CheckedServer(address="b:1", shards=(), error=StoreUnavailable("refused"))
    found = check(server("a:1", 2), idle)
    assert list(found.errors()) == []
    assert any("b:1 does not answer; it has no shards" in each for each in found.warnings())


def test_a_master_without_replica_is_a_warning_if_another_could_take_over() -> None:
    alone = server("a:1", connected_slaves="0")
    [finding] = findings(alone)
    assert "has no replica" in finding
    assert findings(alone, has_failover=False) == []


def test_fewer_replicas_than_enqueues_wait_for_are_an_error() -> None:
    few = server("b:1")
    [error] = check(server("a:1", connected_slaves="2"), few, wait_replicas=2).errors()
    assert error.startswith("b:1: 1 replicas are connected, but DELAYQ['WAIT_REPLICAS'] is 2")
    assert list(check(few, wait_replicas=1).errors()) == []


def test_more_replicas_than_enqueues_wait_for_are_a_warning() -> None:
    two = server("a:1", connected_slaves="2")
    [finding] = check(two, wait_replicas=1).warnings()
    assert finding.startswith("2 replicas are connected, but DELAYQ['WAIT_REPLICAS'] is 1")
    assert list(check(two, wait_replicas=2).warnings()) == list(check(two).warnings()) == []
    # Nothing takes over.
    assert list(check(two, wait_replicas=1, has_failover=False).warnings()) == []


def test_a_master_that_accepts_jobs_when_it_is_cut_off_is_a_warning() -> None:
    for name in ("min-replicas-to-write", "min-replicas-max-lag"):
        careless = server("a:1", settings={**SETTINGS, name: "0"})
        [finding] = findings(careless)
        assert "Set min-replicas-to-write 1 and min-replicas-max-lag 10" in finding
        assert findings(careless, has_failover=False) == []


def test_a_cluster_that_stops_as_a_whole_is_a_warning() -> None:
    settings = {**SETTINGS, "cluster-require-full-coverage": "yes"}
    [finding] = findings(server("a:1"), server("b:1", settings=settings))
    assert finding.startswith("b:1: cluster-require-full-coverage is yes")
    # Sentinels watch servers that have the setting, but are no cluster.
    assert findings(server("a:1", settings=settings, cluster_enabled="0")) == []


def test_settings_that_nobody_may_read_are_named_instead() -> None:
    [finding] = findings(server("a:1", settings={}), server("b:1"))
    assert finding.startswith("Not checked of a:1: ")
    [finding] = findings(server("a:1", settings={}))
    assert finding.startswith("Not checked: ")


def test_clocks_of_servers_that_differ_from_one_another_are_a_warning() -> None:
    # Each is near enough to this host.
    servers = [server("a:1", ahead_us=900_000), server("b:1"), server("c:1", ahead_us=-900_000)]
    [finding] = findings(*servers)
    assert finding.startswith("The clock of a:1 is 1.8 s ahead of that of c:1.")
    assert findings(server("a:1", ahead_us=900_000, within_us=800_000), *servers[1:]) == []


def test_uneven_shards_are_a_warning() -> None:
    [finding] = findings(server("a:1", 4), server("b:1", 1), server("c:1", 1))
    assert finding.startswith("The shards lie unevenly: a:1 has 4, b:1 has 1, c:1 has 1.")
    assert findings(server("a:1", 2), server("b:1", 1)) == []
    assert findings(server("a:1", 2), server("b:1", 0)) != []


def test_masters_without_a_shard_are_a_warning() -> None:
    [finding] = findings(server("a:1", 1), server("b:1", 0), server("c:1", 0))
    assert finding.startswith("No shard is on b:1, c:1: DELAYQ['SHARDS'] is 1, and the cluster has 3 masters.")


def test_an_unknown_policy_is_said_at_the_start() -> None:
    [finding] = check(server("a:1"), server("b:1", maxmemory_policy="")).at_start()
    assert finding.startswith("b:1: The Redis server does not report its maxmemory-policy")
