"""Names of all keys and channels that Greendot uses in Redis.

| key or channel | kind | content |
|---|---|---|
| `presence:{tag}:BB` | hash | `tenant/user` → the packed record of a user with sessions |
| `seen:{tag}:BB` | hash | `tenant/user` → the packed state and name of a user without sessions |
| `nodes:{tag}` | hash | incarnation → `live`, or its last renewal and the end of its sessions |
| `leases:{tag}` | hash | incarnation → counter, last renewal, level, report of restored data; first partition only |
| `claim:{tag}:WORK` | string | the node that reaps, sweeps, grows partitions, buries a node, or prunes a room |
| `typing:{tag}:tenant/room` | sorted set | user (and name) → time of the last accepted start, negative after a stop |
| `present:{tag}:tenant/room` | hash | user → the sessions the user has in the room |
| `present:{tag}:tenant/room~` | sorted set | the room's users, by id; then `~INCARNATION` of their nodes |
| `used:{tag}:tenant/DIGEST` | string | time of the first use of a name, such as the signature of a request |
| `room:{tag}:tenant/room` | channel | messages for a room's subscribers |
| `watch:{tag}:tenant/user` | channel | changes of a user's presence |
| `node:{tag}:INCARNATION` | channel | messages to one node |
| `beat:{tag}:INCARNATION` | channel | messages of a node to itself, which check its connections |

In `nodes`, `~epoch` changes when a partition loses its data, `~clock` corrects its time, and `~buckets` is the number
of its buckets. `~` and an incarnation marks a node that knows `~buckets` and writes the sorted sets of rooms. Claims
are only in the first partition.

A partition has 1 to 128 buckets. Each bucket has a range of the 128 numbers of users, and the first number is its name.
A partition grows by one bucket at a time: the next range is divided into halves, from left to right.

A tag names a partition. All keys of a verb (Lua script) carry the same tag, so that each verb stays in one slot of a
cluster.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from greendot.engine.messages import Topic

PARTITIONS = 128
BUCKETS = 128  # buckets of a partition that has grown completely, and of one without `~buckets`

# One tag per 1/128 of the slots, each in the middle of its range. However the slots are divided into equal ranges,
# every server gets its equal share of the partitions. (`{0}` … `{127}` would give one of 12 servers three times its
# share.)
TAGS = (
    "5n3 d5m 7me 3xc a2j 0i4 cu4 2jb 5js 92e bcu fvs 4xr 0mt cqt x3 dhn 530 3ah 70f 047 4e9 ex 6fo 9of 57p fox j7n 00w"
    " 4ay a8 kag h8q 1j7 78o 3ia 4m0 0x6 6nf mq hx9 1nw brw fgq 4ip 81f kin i1 174 her 34b 7el ekm 403 0r 63e 13t 5bz"
    " n3j jbd 8le 44s 42 k4m 7lu 3ys hlk 975 k94 9k a3z ebt 7h5 f3k 5kc 93u 6z4 2o2 4yb 0ld nc0 71v 9j6 h1h dh kd7 8x7"
    " any 3d8 756 1gn 5rh 221 cio 01g aj9 su7 3hq h9a daw 6ov la afp 846 7y7 3l1 5za 1og 6k6 g0h ab0 09n 35r jg4 l5l"
    " hdb 1b 62u 8i5 i2k 312 bjl 12d 5cj gmk 665 0dm 45c"
).split()


def number_of(tenant: str, user: str) -> tuple[int, int]:
    """Return a user's partition, and the number of the user in the partition: 0 to 127."""
    number = crc32(f"{tenant}/{user}".encode())
    return number % PARTITIONS, number // PARTITIONS % BUCKETS


def bucket_with(number: int, count: int) -> int:
    """Return the bucket with this number, if the partition has `count` buckets."""
    whole = 1 << count.bit_length() - 1  # the ranges before the first of them was divided
    width = BUCKETS // whole
    if number < (count - whole) * width:
        width //= 2
    return number - number % width


@lru_cache(maxsize=BUCKETS)
def bucket_names(count: int) -> tuple[int, ...]:
    """Return the buckets of a partition that has `count` buckets."""
    return tuple(sorted({bucket_with(number, count) for number in range(BUCKETS)}))


class UserKeys:
    """Keys and channel of one user's presence."""

    __slots__ = ("_buckets", "_count", "_number", "_prefix", "channel", "field", "nodes", "partition")

    def __init__(self, prefix: str, tenant: str, user: str) -> None:
        self.field = f"{tenant}/{user}"
        self.partition, self._number = number_of(tenant, user)
        self.nodes = nodes_key(prefix, self.partition)
        self.channel = f"{prefix}watch:{{{TAGS[self.partition]}}}:{self.field}"
        self._prefix = prefix
        self._count = 0
        self._buckets = ("", "")

    def buckets(self, count: int) -> tuple[str, str]:
        """Return the presence bucket and the last-seen bucket, if the partition has `count` buckets."""
        if self._count != count:
            self._count = count
            self._buckets = buckets(self._prefix, self.partition, bucket_with(self._number, count))
        return self._buckets


@lru_cache(maxsize=65_536)
def user_keys(prefix: str, tenant: str, user: str) -> UserKeys:
    return UserKeys(prefix, tenant, user)


def nodes_key(prefix: str, partition: int) -> str:
    return f"{prefix}nodes:{{{TAGS[partition]}}}"


def leases_key(prefix: str) -> str:
    return f"{prefix}leases:{{{TAGS[0]}}}"


def claim_key(prefix: str, what: str) -> str:
    return f"{prefix}claim:{{{TAGS[0]}}}:{what}"


def beat_channel(prefix: str, partition: int, incarnation: str) -> str:
    return f"{prefix}beat:{{{TAGS[partition]}}}:{incarnation}"


def watch_channels(prefix: str, partition: int) -> str:
    """Return the prefix of a partition's watch channels; the user's field follows it."""
    return f"{prefix}watch:{{{TAGS[partition]}}}:"


@lru_cache(maxsize=PARTITIONS * BUCKETS)
def buckets(prefix: str, partition: int, bucket: int) -> tuple[str, str]:
    """Return the names of the presence bucket and the last-seen bucket."""
    tag = TAGS[partition]
    return f"{prefix}presence:{{{tag}}}:{bucket:02x}", f"{prefix}seen:{{{tag}}}:{bucket:02x}"


def partition_of(tenant: str, name: str) -> int:
    return crc32(f"{tenant}/{name}".encode()) % PARTITIONS


def typing_key(prefix: str, tenant: str, room: str) -> str:
    return f"{prefix}typing:{{{TAGS[partition_of(tenant, room)]}}}:{tenant}/{room}"


def present_key(prefix: str, tenant: str, room: str) -> str:
    return f"{prefix}present:{{{TAGS[partition_of(tenant, room)]}}}:{tenant}/{room}"


def present_index_key(prefix: str, tenant: str, room: str) -> str:
    return f"{present_key(prefix, tenant, room)}~"  # no id of a room contains the sign


def used_key(prefix: str, tenant: str, name: str) -> tuple[int, str]:
    """Return partition and key of a used name. The key has a digest of the name, because there can be many names."""
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    partition = partition_of(tenant, digest)
    return partition, f"{prefix}used:{{{TAGS[partition]}}}:{tenant}/{digest}"


def channel(prefix: str, topic: Topic) -> str:
    """Return the channel of a room, watch or node topic."""
    name = f"{topic.tenant}/{topic.name}" if topic.tenant else topic.name
    return f"{prefix}{topic.kind}:{{{TAGS[partition_of(topic.tenant, topic.name)]}}}:{name}"


def slot(key: bytes) -> int:
    """Return the cluster slot of a key or channel: CRC16 (XMODEM) of its tag."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        key = key[start + 1 : end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021) & 0xFFFF if crc & 0x8000 else crc << 1
    return crc % 16384
