"""Checks of the engine: Redis servers, and the connection to them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greendot.config import LOCAL, Settings
from greendot.errors import ConfigError
from greendot.ops.doctor.access import is_local
from greendot.ops.doctor.finding import Finding, Findings, Weight, error, note, ok, or_ok, warning
from greendot.ops.doctor.secrets import weakness
from greendot.ops.facts_model import RedisFacts
from greendot.ops.local_engine import find_program

OLDEST = (7, 0)
LISTPACK = 256
SKEW_MS, TOO_MUCH_SKEW_MS = 500.0, 5_000.0
FULL, NEARLY_FULL = 0.95, 0.8
LEAST_PASSWORD = 20
LEAST_BUFFER = 8_000_000
_LOGIN = re.compile("://([^/?#]*)@")


def engine(settings: Settings, servers: Sequence[RedisFacts]) -> Findings:
    if settings.engine.url == "memory":
        yield ok("engine", "memory: one process, and who is online is not kept over a restart")
        return
    if settings.engine.url == LOCAL:
        yield from _local()
        return
    for server in servers:
        about = f"Redis {server.address}"
        if server.trouble:
            why = "Without it no client is let in."
            yield error(about, f"it cannot be used: {server.trouble}", why, "Look at engine.url, and whether it runs.")
            continue
        summary = f"{server.product} {server.version}, {server.policy}, clock {_ms(server.skew_ms)}"
        yield from or_ok(about, summary, _server(about, server, clustered="+cluster" in settings.engine.url))
    if servers and not all(server.trouble for server in servers):
        yield from _way(settings, servers)


def _local() -> Findings:
    try:
        yield ok("engine", f"private {find_program()}: one machine, and presence is not kept over a restart")
    except ConfigError as missing:
        why = "The workers cannot start without it."
        yield error("engine", "no program for a private engine", why, str(missing))


def _server(about: str, server: RedisFacts, *, clustered: bool) -> Findings:
    numbers = tuple(int(part) for part in server.version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        why = "Scripts and sharded channels need it."
        yield error(about, f"version {server.version}", why, "Redis 7.0 or newer, or Valkey.")
    if server.role != "master":
        yield error(about, "it is a replica", "Nothing can be written there.", "Give the primary in engine.url.")
    if server.policy != "noeviction":
        why = "When its memory is full it would throw away who is online. A server refuses to start so."
        do = "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf."
        yield error(about, f"maxmemory-policy is {server.policy}", why, do)
    yield from _memory(about, server)
    yield from _duties(about, server)
    if server.clustered != clustered:
        found = "it is part of a cluster" if server.clustered else "it is no cluster"
        do = "Write redis+cluster:// in engine.url." if server.clustered else "Write redis:// in engine.url."
        yield error(about, found, "Keys are elsewhere than we look.", do)
    if server.cluster_state not in (None, "ok"):
        why = "A part of the users cannot be written or read."
        yield error(
            about, f"the cluster's state is {server.cluster_state}", why, "redis-cli CLUSTER INFO, CLUSTER NODES."
        )
    yield from skew(about, server.skew_ms)


def _memory(about: str, server: RedisFacts) -> Findings:
    if server.listpack_value is None:
        why = "Records are 40 to 120 bytes; above the default of 64 they take two to three times the memory."
        do = f"An administrator looks: redis-cli CONFIG GET hash-max-listpack-value ({LISTPACK} or more)."
        yield note(about, "hash-max-listpack-value may not be read with these rights", why, do)
    elif server.listpack_value < LISTPACK:
        why = "Records are 40 to 120 bytes; those above it take two to three times the memory."
        do = f"redis-cli CONFIG SET hash-max-listpack-value {LISTPACK}, and the same in redis.conf."
        yield warning(about, f"hash-max-listpack-value is {server.listpack_value}", why, do)
    if not server.memory_most:
        why = "It grows until the machine has nothing left. `greendot plan` says what so many users need."
        yield note(about, "maxmemory is not set", why, "redis-cli CONFIG SET maxmemory 1gb, and in redis.conf.")
    elif server.memory_used > NEARLY_FULL * server.memory_most:
        share = server.memory_used / server.memory_most
        yield Finding(
            "error" if share > FULL else "warning",
            about,
            f"{share:.0%} of maxmemory are used",
            "When it is full, new clients are sent away.",
            "Raise maxmemory, or give Greendot a Redis of its own.",
        )


def _duties(about: str, server: RedisFacts) -> Findings:
    """Yield the findings about persistence, connections, keyspace events and subscriber buffers."""
    if server.snapshot_failed:
        why = "Until one succeeds it refuses every write (MISCONF): nobody comes online."
        do = 'redis-cli CONFIG SET save "": nothing here needs a snapshot. Or look at its log and its disk.'
        yield error(about, "its last snapshot failed", why, do)
    elif server.persists:
        why = "Nothing here is worth it: nodes fill an empty Redis again. Forks take memory and time."
        yield note(about, "it writes snapshots or a log to disk", why, 'save "" and appendonly no in redis.conf.')
    if server.clients_most and server.clients > NEARLY_FULL * server.clients_most:
        found = f"{server.clients} of {server.clients_most} connections (maxclients) are taken"
        why = "A node that gets none cannot start, or come back."
        yield warning(about, found, why, "Raise maxclients, or look who has them: redis-cli CLIENT LIST")
    if server.notifies:
        why = "Every change of a key is published. Greendot does not listen to it."
        do = 'redis-cli CONFIG SET notify-keyspace-events "", unless another app needs it.'
        yield note(about, f"notify-keyspace-events is {server.notifies}", why, do)
    if server.pubsub_buffer is not None and 0 < server.pubsub_buffer < LEAST_BUFFER:
        found = f"client-output-buffer-limit cuts subscribers off at {server.pubsub_buffer / 1e6:.1f} MB"
        why = "A node that is late for a moment loses its link, and reads again all it follows."
        do = 'redis-cli CONFIG SET client-output-buffer-limit "pubsub 32mb 8mb 60"'
        yield warning(about, found, why, do)


def _way(settings: Settings, servers: Sequence[RedisFacts]) -> Findings:
    """Yield the findings about TLS, passwords and rights of the login."""
    url = settings.engine.url
    local = all(server.address.startswith("/") or is_local(server.address.rpartition(":")[0]) for server in servers)
    if not url.startswith("rediss") and not local:
        why = "Who sees the traffic reads what people write, and the key that scripts sign with."
        yield warning("engine.url", "no TLS to Redis on another machine", why, "rediss://…?ca=FILE")
    open_ones = [server.address for server in servers if server.lets_anyone_in]
    if open_ones:
        why = "Whoever reaches the port can forge who is online, read messages and delete all of it."
        do = "ACL SETUSER default off, and a user for Greendot: docs/redis-keys.md has the line."
        weight: Weight = "warning" if not local else "note"
        yield Finding(weight, "engine.url", f"{', '.join(open_ones)} lets in who says no password", why, do)
    login = _LOGIN.search(url)
    password = login[1].partition(":")[2] if login else ""
    if password and (weak := weakness(password, LEAST_PASSWORD)):
        yield warning("engine.url", f"the password is weak: {weak}", "It can be guessed.", "openssl rand -hex 32")
    if any(server.has_more_rights for server in servers) and not (local and open_ones):
        why = "Who gets hold of the login can do more than Greendot does."
        yield note("engine.url", "the login may do more than is needed", why, "docs/redis-keys.md has a user for it.")


def skew(about: str, ms: float) -> Findings:
    """Yield a finding if a server's clock differs from ours."""
    if abs(ms) < SKEW_MS:
        return
    why = "Who is online since when, tokens and revocations are told by both clocks."
    found = f"its clock is {abs(ms) / 1000:,.1f} s {'ahead of' if ms > 0 else 'behind'} this machine's"
    yield Finding(
        "error" if abs(ms) >= TOO_MUCH_SKEW_MS else "warning", about, found, why, "Run NTP (chrony) on both machines."
    )


def _ms(ms: float) -> str:
    return "as ours" if abs(ms) < SKEW_MS else f"{ms / 1000:+,.1f} s"
