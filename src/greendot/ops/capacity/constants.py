"""Measured costs of one connection, message and so on, each with its row in bench/RESULTS.md.

bench/RESULTS.md describes how the costs were measured, and on which machine. A test compares both. After a new run of
the bench, change these constants by hand and generate docs/capacity.md again (scripts/capacity-page).
"""

from __future__ import annotations

from msgspec import Struct

RESULTS = "bench/RESULTS.md"


class Constant(Struct, frozen=True):
    """Measured figure, and its row in bench/RESULTS.md."""

    value: float
    unit: str
    section: str  # heading above the table
    row: str  # first cell of the row
    column: int = 1  # index of the cell, from 0

    @property
    def source(self) -> str:
        return f"{RESULTS}, {self.section}: {self.row}"


TARGETS, DELIVERIES, CONNECTIONS = "Targets", "Deliveries per second, 1,000 subscribers", "Connections"
REDIS, RECORDS, SECURITY, SIZING = "With Redis", "Records", "Security", "Sizing"
IDLE = 15_000  # connections in the two measurements of idle ones
SMALL, LARGE = 10_000, 100_000  # users in the two measurements of Redis' memory

CONSTANTS: dict[str, Constant] = {
    "connection": Constant(3.1, "KB", TARGETS, "memory per idle connection at 15,000"),
    "idle": Constant(3.2, "% of a core", TARGETS, "CPU of 15,000 idle connections"),
    "connects": Constant(8_468, "/s of a core", TARGETS, "connects/s, hello and JWT included"),
    "deliveries": Constant(208_066, "/s of a core", DELIVERIES, "Greendot"),
    "delivery_bytes": Constant(246, "B", DELIVERIES, "Greendot", 5),
    "most_held": Constant(19_400, "connections", CONNECTIONS, "Greendot", 4),
    "small_fanout": Constant(445_737, "deliveries/s of a core", SECURITY, "broadcast to 10 with 16 in flight, on"),
    "message_cpu": Constant(
        59, "µs", SECURITY, "messages of 50 senders in rooms of their own, PostgreSQL: CPU of each, without"
    ),
    "messages": Constant(12_396, "/s", RECORDS, "messages of 50 senders in rooms of their own, PostgreSQL"),
    "messages_sqlite": Constant(11_126, "/s", RECORDS, "messages of 50 senders in one room, SQLite"),
    "notifications": Constant(18_818, "/s", RECORDS, "notifications through HTTP in lists of 100, PostgreSQL"),
    "notifying": Constant(39, "% of a core", RECORDS, "notifications through HTTP in lists of 100, PostgreSQL", 3),
    "intake": Constant(596_722, "/s of a core", REDIS, "messages taken in per second of the node's core"),
    "read": Constant(1.81, "µs", REDIS, "presence of 200 users: CPU of the node per user"),
    "redis_small": Constant(88, "bytes", REDIS, "memory of Redis per online user, 10,000 users"),
    "redis_large": Constant(72, "bytes", REDIS, "memory of Redis per online user, 100,000 users"),
    "idle_commands": Constant(3, "/s", REDIS, "10,000 idle users on one node: commands to Redis"),
    "watch": Constant(1_324, "bytes", SIZING, "memory of a node per user watched by nobody else here"),
    "room": Constant(643, "bytes", SIZING, "memory of a node per room joined, rooms of 20"),
    "crowded": Constant(120, "bytes", SIZING, "memory of Redis per user, 1000 of them in one hash"),
    "channel": Constant(234, "bytes", SIZING, "memory of Redis per channel with one node on it"),
    "subscriber": Constant(144, "bytes", SIZING, "memory of Redis per further node on a channel"),
    "publish": Constant(2.1, "µs", SIZING, "CPU of Redis per message published to one node"),
    "hear": Constant(0.4, "µs", SIZING, "CPU of Redis per further node that hears it"),
    "idle_node": Constant(205, "µs", SIZING, "CPU of Redis per node that has nothing to do, a second"),
    "come_and_go": Constant(80, "µs", SIZING, "CPU of Redis per user who comes and leaves, each told to one node"),
    "start": Constant(13, "µs", SIZING, "CPU of Redis per start of typing, told to one node"),
    "message_disk": Constant(406, "bytes", SIZING, "PostgreSQL per message of 128 bytes: on disk, indexes included"),
    "message_wal": Constant(670, "bytes", SIZING, "PostgreSQL per message of 128 bytes: write-ahead log"),
    "message_pg": Constant(17, "µs", SIZING, "PostgreSQL per message of 128 bytes: CPU, 50 writers"),
    "notification_disk": Constant(
        755, "bytes", SIZING, "PostgreSQL per notification of 128 bytes: on disk, indexes included"
    ),
    "notification_wal": Constant(1_238, "bytes", SIZING, "PostgreSQL per notification of 128 bytes: write-ahead log"),
    "notification_pg": Constant(27, "µs", SIZING, "PostgreSQL per notification of 128 bytes: CPU, 50 writers"),
    "head": Constant(
        2, "µs", SIZING, "PostgreSQL per head of a room that is looked up, 10,000 at once: CPU"
    ),
}  # fmt: skip


def of(name: str) -> float:
    """Return the value of a constant, in its own unit."""
    return CONSTANTS[name].value


def seconds(name: str) -> float:
    """Return a constant, measured in microseconds, as seconds."""
    assert CONSTANTS[name].unit == "µs"
    return CONSTANTS[name].value / 1e6
