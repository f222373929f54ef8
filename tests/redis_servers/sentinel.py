"""A primary, its replica and three sentinels that watch over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .process import RedisProcess, together, until
from .proxy import Proxy

NAME = "mymaster"
QUORUM = 2
# What no client sends, but sentinels do (in the name of their connections) and replicas.
BACKSTAGE = (b"sentinel-", b"REPLCONF")
# Sentinel's own periods are made for networks; failing over would take most of a test's time.
PERIODS_MS = {
    "info-period": 200,
    "ping-period": 400,  # times five is how old the news of a replica may be that is promoted; they come every second
    "ask-period": 100,
    "publish-period": 200,
    "tilt-period": 1_000,  # after a pause of a busy machine sentinels do nothing for this long; 30 s otherwise
}


class Sentinel:
    """`primary` and `replica` are the roles that the sentinels see now.

    Each stands behind a proxy, and the proxy's port is the one that sentinels tell to clients.
    """

    def __init__(self, servers: dict[RedisProcess, Proxy], sentinels: list[RedisProcess]) -> None:
        self.primary, self.replica = servers
        self.proxies = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels) + f"/{NAME}"

    def fail_over(self) -> RedisProcess:
        """Kill the primary and wait for the promotion of the replica; gives this replica."""
        self.primary.kill()
        return self.promoted()

    def split(self) -> RedisProcess:
        """Two primaries: the old one, given back, runs on and answers its clients, but for sentinels it is gone.

        They have promoted the replica and cannot demote the old one until `heal`. What is written to it is lost then.
        """
        old = self.primary
        self.proxies[old].freeze(*BACKSTAGE)
        self.promoted()
        return old

    def heal(self) -> None:
        """After `split` or a restart of the old primary: wait until it is a replica of the new one, in step."""
        self.proxies[self.replica].heal()
        until(self._is_in_step, "the old primary follows the new one")
        until(self._is_known, "the sentinels see the old primary as a replica")

    def promoted(self) -> RedisProcess:
        """Wait until all sentinels name the replica as the primary, which it then is; gives it. The roles change."""
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
        """Whether a failover would succeed: every sentinel knows everybody and everybody is well."""
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
            # Valkey keeps what the others said of the primary before.
            and all(row["flags"] in ("sentinel", "sentinel,master_down") for row in others)
        )


@contextmanager
def redis_sentinel(folder: Path, kind: str = "redis") -> Iterator[Sentinel]:
    """One primary, one replica in step, three sentinels of which two decide."""
    primary, replica = processes = [RedisProcess(kind, folder) for _ in range(2)]
    sentinels = [RedisProcess(kind, folder, sentinel=True) for _ in range(3)]
    group = Sentinel({process: Proxy(process.port) for process in processes}, sentinels)
    for process, proxy in group.proxies.items():
        process.configure({"replica-announce-port": proxy.port})
    with group.proxies[primary] as public, group.proxies[replica] as spare, together(*processes):
        replica.command("REPLICAOF", "127.0.0.1", public.port)
        until(group._is_in_step, "the replica is in step")
        for number, process in enumerate(sentinels):
            process.configure({"sentinel": _lines(number, sentinels, public.port, spare.port)})
        with together(*sentinels):
            for process in sentinels:
                process.command("SENTINEL", "DEBUG", *(word for pair in PERIODS_MS.items() for word in pair))
            until(group._is_known, "the sentinels know everybody")
            yield group


def _lines(number: int, sentinels: list[RedisProcess], primary: int, replica: int) -> list[str]:
    """A sentinel's configuration. It knows the others from the start: finding each other would take seconds."""
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
