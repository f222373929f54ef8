"""Primary, replica and three sentinels that watch them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .process import RedisProcess, together, until
from .proxy import Proxy

NAME = "mymaster"
QUORUM = 2
# Sent by sentinels (in the name of their connections) and replicas only, never by clients.
BACKSTAGE = (b"sentinel-", b"REPLCONF")
# Sentinel's default periods are for real networks; a failover would take most of a test's time.
PERIODS_MS = {
    "info-period": 200,
    "ping-period": 400,  # a promoted replica's last reply may be five times as old; replies come every second
    "ask-period": 100,
    "publish-period": 200,
    "tilt-period": 1_000,  # sentinels do nothing for this long after a pause of a busy machine; 30 s by default
}


class Sentinel:
    """Sentinel group. `primary` and `replica` are the roles that the sentinels see now.

    Each server is behind a proxy, and sentinels give the proxy's port to clients.
    """

    def __init__(self, servers: dict[RedisProcess, Proxy], sentinels: list[RedisProcess]) -> None:
        self.primary, self.replica = servers
        self.proxies = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels) + f"/{NAME}"

    def fail_over(self) -> RedisProcess:
        """Kill the primary, wait for the promotion of the replica and return the replica."""
        self.primary.kill()
        return self.promoted()

    def split(self) -> RedisProcess:
        """Split the group: the old primary still answers its clients, but sentinels cannot reach it. Return the old
        primary.

        Sentinels have promoted the replica and cannot demote the old primary until `heal`. Then its later writes are
        lost.
        """
        old = self.primary
        self.proxies[old].freeze(*BACKSTAGE)
        self.promoted()
        return old

    def heal(self) -> None:
        """Wait until the old primary is a replica of the new one, in sync, after `split` or a restart."""
        self.proxies[self.replica].heal()
        until(self._is_in_step, "the old primary follows the new one")
        until(self._is_known, "the sentinels see the old primary as a replica")

    def promoted(self) -> RedisProcess:
        """Wait until all sentinels name the replica as the primary. Swap the roles and return it."""
        primary, replica = self.replica, self.primary
        port = self.proxies[primary].port

        def is_promoted() -> bool:
            return primary.command("ROLE")[0] == b"master" and all(_named(each) == port for each in self.sentinels)

        until(is_promoted, "the sentinels have promoted the replica")
        self.primary, self.replica = primary, replica
        return primary

    def _is_in_step(self) -> bool:
        role = self.replica.command("ROLE")
        return role[:4] == [b"slave", b"127.0.0.1", self.proxies[self.primary].port, b"connected"]

    def _is_known(self) -> bool:
        """Return whether a failover would succeed: all sentinels know all servers, and all servers are reachable."""
        return all(map(self._is_content, self.sentinels))

    def _is_content(self, sentinel: RedisProcess) -> bool:
        primary = _row(sentinel.command("SENTINEL", "MASTER", NAME))
        replicas = [_row(row) for row in sentinel.command("SENTINEL", "REPLICAS", NAME)]
        others = [_row(row) for row in sentinel.command("SENTINEL", "SENTINELS", NAME)]
        return (
            (primary["port"], primary["flags"]) == (str(self.proxies[self.primary].port), "master")
            and [(row["port"], row["flags"]) for row in replicas] == [(str(self.proxies[self.replica].port), "slave")]
            and replicas[0]["master-link-status"] == "ok"
            and len(others) == len(self.sentinels) - 1
            # Valkey keeps older reports of the others about the primary.
            and all(row["flags"] in ("sentinel", "sentinel,master_down") for row in others)
        )


@contextmanager
def redis_sentinel(folder: Path, kind: str = "redis") -> Iterator[Sentinel]:
    """Run one primary, one replica in sync, and three sentinels with a quorum of two."""
    primary, replica = processes = [RedisProcess(kind, folder) for _ in range(2)]
    sentinels = [RedisProcess(kind, folder, sentinel=True) for _ in range(3)]
    group = Sentinel({process: Proxy(process.port) for process in processes}, sentinels)
    for process, proxy in group.proxies.items():
        process.configure({"replica-announce-port": proxy.port})
    with group.proxies[primary] as public, group.proxies[replica] as spare, together(*processes):
        replica.command("REPLICAOF", "127.0.0.1", public.port)
        until(group._is_in_step, "the replica is in sync")
        for number, process in enumerate(sentinels):
            process.configure({"sentinel": _lines(number, sentinels, public.port, spare.port)})
        with together(*sentinels):
            for process in sentinels:
                process.command("SENTINEL", "DEBUG", *(word for pair in PERIODS_MS.items() for word in pair))
            until(group._is_known, "the sentinels know all servers")
            yield group


def _lines(number: int, sentinels: list[RedisProcess], primary: int, replica: int) -> list[str]:
    """Return a sentinel's configuration. It has the other sentinels from the start: discovery would take seconds."""
    ids = [f"{process.port:040x}" for process in sentinels]
    known = zip(sentinels, ids, strict=True)
    return [
        f"myid {ids[number]}",
        f"monitor {NAME} 127.0.0.1 {primary} {QUORUM}",
        f"down-after-milliseconds {NAME} 1000",
        f"failover-timeout {NAME} 2000",
        f"known-replica {NAME} 127.0.0.1 {replica}",
        *(f"known-sentinel {NAME} 127.0.0.1 {each.port} {id_}" for each, id_ in known if id_ != ids[number]),
    ]


def _named(sentinel: RedisProcess) -> int:
    return int(sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])


def _row(pairs: list[Any]) -> dict[str, str]:
    words = [word.decode() for word in pairs]
    return dict(zip(words[::2], words[1::2], strict=True))
