"""Real Redis and Valkey servers for tests, on free ports, ended with the tests."""

from __future__ import annotations

from .process import KINDS, RedisProcess, binary, free_port, redis_server, until
from .resp import Connection

__all__ = [
    "KINDS",
    "Connection",
    "RedisProcess",
    "binary",
    "free_port",
    "redis_server",
    "until",
]
