"""Topologies: the topology of a RedisConfig."""

from redis.sentinel import SentinelConnectionPool

from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.routing.cluster import ClusterTopology
from django_delayq.store.routing.sentinel import SentinelTopology
from django_delayq.store.routing.topology import Topology


def make_topology(config: RedisConfig, *, producer_timeout: float) -> Topology:
    """Return the topology of a configuration. Opens no connection.

    Raises ImproperlyConfigured if the client library does not understand the setting.
    """
    connections = Connections(config)
    if config.nodes:
        return ClusterTopology(config.nodes, connections, producer_timeout=producer_timeout, remap=config.address_remap)
    pool = connections.configured_pool()
    if isinstance(pool, SentinelConnectionPool):
        manager, service = pool.sentinel_manager, pool.service_name
        return SentinelTopology(manager, service, connections, producer_timeout=producer_timeout)
    return Topology(connections, producer_timeout=producer_timeout)
