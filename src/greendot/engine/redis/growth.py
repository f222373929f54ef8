"""Growth of partitions: the more users a partition has, the more buckets it gets.

Few users in many buckets need several times the memory, because each bucket is a key of Redis. A new partition begins
with one bucket. When a verb finds a bucket with too many users, the partition gets one bucket more. The script `grow`
moves the users of half a bucket and changes the number of buckets, in one step. A verb with another number of buckets
is refused; its node then uses the current number (`presence.Verbs`).

Nodes of an older version expect all 128 buckets. Where such a node lives, partitions without data begin with 128, and
a partition with fewer grows completely. Records that the older node has read or written before are then in question,
so the epoch changes, and all nodes restore their sessions as after a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from greendot.engine.redis import keys
from greendot.engine.redis.nodes import CLAIM_MS, HOME, NodeLeases, new_epoch
from greendot.engine.redis.presence import Verbs
from greendot.telemetry import log_events
from greendot.telemetry.log import log


class PartitionGrowth:
    """Growth of the partitions, as far as this node causes it."""

    def __init__(self, verbs: Verbs, nodes: NodeLeases) -> None:
        self._verbs = verbs
        self._nodes = nodes

    async def grow(self, partition: int) -> None:
        """Add one bucket to a partition, unless another node has added one."""
        count = self._verbs.servers.bucket_counts[partition]
        if count < keys.BUCKETS:
            more = {*keys.bucket_names(count + 1)}
            (added,) = more - {*keys.bucket_names(count)}
            divided = keys.bucket_with(added, count)
            await self._grow(partition, [divided, added], count + 1, "")

    def is_needed(self) -> bool:
        """Return whether a partition has fewer buckets than nodes of an older version expect."""
        return min(self._verbs.servers.bucket_counts) < keys.BUCKETS

    async def grow_completely(self) -> None:
        """Give all partitions all buckets, and a new epoch. Only one node does this."""
        await self._nodes.register(range(keys.PARTITIONS))  # reads the current numbers of buckets
        claim = keys.claim_key(self._verbs.prefix, "grow")
        home = self._verbs.servers.of(HOME)
        taken = await home.call("SET", claim, self._nodes.incarnation, "NX", "PX", CLAIM_MS)
        if self.is_needed() and taken is not None:
            epoch = new_epoch()
            log(log_events.REDIS_BUCKETS)
            everything = range(keys.BUCKETS)
            work = (self._grow(p, everything, keys.BUCKETS, epoch) for p in range(keys.PARTITIONS))
            await asyncio.gather(*work)

    async def _grow(self, partition: int, buckets: Sequence[int], wanted: int, epoch: str) -> None:
        verbs = self._verbs
        names = [keys.nodes_key(verbs.prefix, partition)]
        for bucket in buckets:
            names += keys.buckets(verbs.prefix, partition, bucket)
        count = await verbs.servers.run(partition, "grow", names, verbs.servers.bucket_counts[partition], wanted, epoch)
        verbs.servers.bucket_counts[partition] = count
