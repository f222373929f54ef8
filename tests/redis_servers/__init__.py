"""Real Redis and Valkey servers for tests, on free ports, which end with the tests."""

from __future__ import annotations

from .cluster import Cluster, redis_cluster
from .process import KINDS, RedisProcess, binary, free_port, redis_server, until
from .proxy import Proxy
from .resp import Connection
from .rights import commands, limited, rights
from .sentinel import Sentinel, redis_sentinel
from .tls import Certificates, certificates

__all__ = [
    "KINDS",
    "Certificates",
    "Cluster",
    "Connection",
    "Proxy",
    "RedisProcess",
    "Sentinel",
    "binary",
    "certificates",
    "commands",
    "free_port",
    "limited",
    "redis_cluster",
    "redis_sentinel",
    "redis_server",
    "rights",
    "until",
]
