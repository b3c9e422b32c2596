"""Topologies: the topology of a RedisConfig."""

from redis.sentinel import SentinelConnectionPool

from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.pools.configured_pool import as_improperly_configured, checked_pool, resolved
from django_delayq.store.routing.cluster import ClusterTopology
from django_delayq.store.routing.sentinel import SentinelTopology
from django_delayq.store.routing.topology import Topology


def make_topology(config: RedisConfig, *, producer_timeout: float) -> Topology:
    """Return the topology of a configuration. Opens no connection.

    Raises ImproperlyConfigured if the client library does not understand the setting.
    """
    with as_improperly_configured(config):
        found = resolved(config)
        pool = checked_pool(found)
    connections = Connections(config, described=pool if found is config else None)
    if isinstance(found, RedisConfig) and found.nodes:
        return ClusterTopology(found.nodes, connections, producer_timeout=producer_timeout, remap=found.address_remap)
    if isinstance(pool, SentinelConnectionPool):
        manager, service = pool.sentinel_manager, pool.service_name
        return SentinelTopology(manager, service, connections, producer_timeout=producer_timeout)
    return Topology(connections, producer_timeout=producer_timeout)
