"""Real Redis and Valkey servers for tests, on free ports, ended with the tests."""

from __future__ import annotations

from .cluster import Cluster, redis_cluster
from .process import KINDS, RedisProcess, binary, free_port, redis_server, until
from .proxy import Proxy
from .resp import Connection

__all__ = [
    "KINDS",
    "Cluster",
    "Connection",
    "Proxy",
    "RedisProcess",
    "binary",
    "free_port",
    "redis_cluster",
    "redis_server",
    "until",
]
