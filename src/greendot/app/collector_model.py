"""Decision when all memory is collected: when it has grown more than clients and topics explain.

Objects are frozen when they have lived for some time, and the garbage collector no longer visits them. A reference
cycle among frozen objects stays in memory. Greendot's own objects form no such cycles, but those of a library may.
"""

from __future__ import annotations

from typing import NamedTuple

CONNECTION_BYTES = 64 * 1024  # memory of a connection, with TLS: more than usual
TOPIC_BYTES = 2 * 1024  # memory of a watched user or of a room, without its occupants
GROWTH = 1.5  # memory may be larger than explained by this factor
SPARE_BYTES = 64 * 1024 * 1024  # and by this number of bytes
STEP = 1.25  # growth of the explained memory after which the comparison starts from the present memory


class NodeLoad(NamedTuple):
    """Number of objects whose memory is explained."""

    connections: int
    topics: int

    @property
    def bytes(self) -> int:
        return self.connections * CONNECTION_BYTES + self.topics * TOPIC_BYTES


class MemoryGrowth:
    """Growth of a process since the last complete collection."""

    def __init__(self, memory: int, load: NodeLoad) -> None:
        """Start from this memory, in bytes, and this load."""
        self._memory = memory
        self._load = load.bytes

    def is_unexplained(self, memory: int, load: NodeLoad) -> bool:
        """Return whether the memory has grown for another reason than the load."""
        explained = self._memory + max(0, load.bytes - self._load)
        if memory > explained * GROWTH + SPARE_BYTES:
            return True
        if memory <= explained and explained > self._memory * STEP:
            # The load needs less than `explained`. Without a new start, a leak could hide in the difference.
            self._memory, self._load = memory, load.bytes
        return False
