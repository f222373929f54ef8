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

OLDEST = (7, 0)  # oldest version of Redis
LISTPACK = 256  # lowest hash-max-listpack-value, in bytes
SKEW_MS, TOO_MUCH_SKEW_MS = 500.0, 5_000.0  # clock differences that are a warning and an error
FULL, NEARLY_FULL = 0.95, 0.8  # shares of maxmemory or maxclients that are in use
LEAST_PASSWORD = 20  # characters
LEAST_BUFFER = 8_000_000  # lowest limit of a subscriber's output buffer, in bytes
_LOGIN = re.compile("://([^/?#]*)@")


def engine(settings: Settings, servers: Sequence[RedisFacts]) -> Findings:
    if settings.engine.url == "memory":
        yield ok("engine", "memory: for one process; presence is lost at a restart")
        return
    if settings.engine.url == LOCAL:
        yield from _local()
        return
    for server in servers:
        about = f"Redis {server.address}"
        if server.trouble:
            why = (
                "Without Redis, a node of Greendot does not start. "
                "Running nodes accept no new clients (engine.when_away)."
            )
            if settings.engine.when_away == "accept":
                why = (
                    "Without Redis, a node of Greendot does not start. "
                    "On a running node, users see only users of this node."
                )
            yield error(about, f"not usable: {server.trouble}", why, "Check engine.url. Check that Redis runs.")
            continue
        summary = f"{server.product} {server.version}, {server.policy}, clock {_offset(server.skew_ms)}"
        yield from or_ok(about, summary, _server(about, server, settings.engine.url))
    if servers and not all(server.trouble for server in servers):
        yield from _way(settings, servers)


def _local() -> Findings:
    try:
        yield ok(
            "engine",
            f"{find_program()}, started by Greendot: for one machine; presence is lost when `greendot serve` ends",
        )
    except ConfigError as missing:
        why = "Greendot cannot start its workers without this program."
        yield error("engine", "no Valkey or Redis program is installed", why, str(missing))


def _server(about: str, server: RedisFacts, url: str) -> Findings:
    numbers = tuple(int(part) for part in server.version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        why = "The scripts and channels of Greendot need version 7.0."
        yield error(about, f"version {server.version} is too old", why, "Use Redis 7.0 or newer, or Valkey.")
    if server.role != "master":
        yield error(about, "the server is a replica", "A replica refuses writes.", "Set engine.url to the primary.")
    if server.policy != "noeviction":
        why = "When memory is full, Redis would delete presence data. Greendot refuses to start with this policy."
        do = "Run: redis-cli CONFIG SET maxmemory-policy noeviction. Set the same in redis.conf."
        yield error(about, f"maxmemory-policy is {server.policy}", why, do)
    yield from _memory(about, server)
    yield from _duties(about, server)
    if server.clustered != ("+cluster" in url):
        why = "Greendot would look for keys on the wrong servers."
        base = "rediss" if url.startswith("rediss") else "redis"
        if server.clustered:
            do = f"Let engine.url begin with {base}+cluster://, without a database number."
            yield error(about, "the server is part of a cluster", why, do)
        else:
            do = f"Let engine.url begin with {base}://, with one host."
            yield error(about, "the server is not part of a cluster", why, do)
    if server.cluster_state not in (None, "ok"):
        why = "Data of some users cannot be read or written."
        yield error(
            about,
            f"the cluster's state is {server.cluster_state}",
            why,
            "Find the failed servers with: redis-cli CLUSTER NODES. Start them again, or replace them.",
        )
    yield from skew(about, server.skew_ms)


LONG_RECORDS = (
    "Greendot stores the presence of users in hashes of Redis. The presence of a user has 40 to 120 bytes. If a value "
    "of a hash has more bytes than hash-max-listpack-value, the whole hash needs twice the memory."
)


def _memory(about: str, server: RedisFacts) -> Findings:
    if server.listpack_value is None:
        why = f"{LONG_RECORDS} The default of hash-max-listpack-value is 64."
        do = (
            "With a Redis user that may run CONFIG, run: redis-cli CONFIG GET hash-max-listpack-value. "
            f"The value should be {LISTPACK} or more."
        )
        yield note(about, "the login has no right to read hash-max-listpack-value", why, do)
    elif server.listpack_value < LISTPACK:
        why = LONG_RECORDS
        do = f"Run: redis-cli CONFIG SET hash-max-listpack-value {LISTPACK}. Set the same in redis.conf."
        yield warning(about, f"hash-max-listpack-value is {server.listpack_value}", why, do)
    if not server.memory_most:
        why = "Redis can use all memory of the machine. Then the kernel may kill Redis."
        do = (
            "Choose 1.5 times the memory that `greendot plan` prints. The size must be above the "
            f"{server.memory_used / 1e6:,.0f} MB that Redis uses now: otherwise Redis refuses writes at once. "
            "Run: redis-cli CONFIG SET maxmemory SIZE. Set the same in redis.conf."
        )
        yield note(about, "maxmemory is not set", why, do)
    elif server.memory_used > NEARLY_FULL * server.memory_most:
        share = server.memory_used / server.memory_most
        yield Finding(
            "error" if share > FULL else "warning",
            about,
            f"{share:.0%} of maxmemory is used",
            "When the memory is full, new clients are refused.",
            "Raise maxmemory, or use a separate Redis for Greendot.",
        )


def _duties(about: str, server: RedisFacts) -> Findings:
    """Yield the findings about persistence, connections, keyspace events and subscriber buffers."""
    if server.snapshot_failed:
        why = (
            "Redis refuses all writes (MISCONF), so no user can come online. Redis accepts writes again when a "
            "snapshot succeeds, or when snapshots are turned off."
        )
        do = (
            'Unless another app needs snapshots, turn them off: redis-cli CONFIG SET save "". Set the same in '
            "redis.conf. To keep snapshots, find the cause in the log of Redis, and check that its disk is not full."
        )
        yield error(about, "the last snapshot failed", why, do)
    elif server.persists:
        why = (
            "Writing these files costs memory and time. Greendot needs no copy on disk: if Redis loses its data, the "
            "nodes write the data again."
        )
        do = (
            'Unless another app needs these files, run: redis-cli CONFIG SET save "" appendonly no. '
            "Set the same in redis.conf."
        )
        yield note(about, "the server writes snapshots or a log to disk", why, do)
    if server.clients_most and server.clients > NEARLY_FULL * server.clients_most:
        found = f"{server.clients} of {server.clients_most} connections (maxclients) are in use"
        why = "If all connections are in use, a node cannot connect to Redis."
        yield warning(about, found, why, "Raise maxclients, or list the connections: redis-cli CLIENT LIST")
    if server.notifies:
        why = "Redis publishes an event for every change of a key. Greendot does not use these events."
        do = (
            'Unless another app needs these events, run: redis-cli CONFIG SET notify-keyspace-events "". '
            "Set the same in redis.conf."
        )
        yield note(about, f"notify-keyspace-events is {server.notifies}", why, do)
    if server.pubsub_buffer is not None and 0 < server.pubsub_buffer < LEAST_BUFFER:
        found = f"client-output-buffer-limit disconnects subscribers at {server.pubsub_buffer / 1e6:.1f} MB"
        why = (
            "Each node is a subscriber. Redis disconnects a node that reads too slowly. The node then reconnects, and "
            "reads the current data of its users and rooms again."
        )
        do = 'Run: redis-cli CONFIG SET client-output-buffer-limit "pubsub 32mb 8mb 60". Set the same in redis.conf.'
        yield warning(about, found, why, do)


def _way(settings: Settings, servers: Sequence[RedisFacts]) -> Findings:
    """Yield the findings about TLS, passwords, and the rights of the Redis login."""
    url = settings.engine.url
    local = all(server.address.startswith("/") or is_local(server.address.rpartition(":")[0]) for server in servers)
    if not url.startswith("rediss") and not local:
        why = (
            "An attacker on the network can read messages, and can forge presence and typing. Scripts in Redis sign "
            "presence and typing, so Greendot sends a key for signatures to Redis, and the attacker can read this key. "
            "It is derived from auth.secret, but auth.secret cannot be computed from it."
        )
        do = "Turn on TLS in Redis. In engine.url, write rediss in place of redis, and add ?ca=FILE"
        yield warning("engine.url", "the connection to Redis on another machine has no TLS", why, do)
    open_ones = [server.address for server in servers if server.lets_anyone_in]
    if open_ones:
        why = "Any program that reaches the port can forge presence, read messages and delete all data."
        do = (
            "Create a Redis user as in docs/redis-keys.md. Put its name and password into engine.url of all nodes, and "
            "restart the nodes one after the other. Also give administrators, other apps, replicas and Sentinels their "
            "own Redis users. Then run: redis-cli ACL SETUSER default off. Write all users into redis.conf."
        )
        weight: Weight = "warning" if not local else "note"
        yield Finding(weight, "engine.url", f"no password is needed at {', '.join(open_ones)}", why, do)
    login = _LOGIN.search(url)
    password = login[1].partition(":")[2] if login else ""
    if password and (weak := weakness(password, LEAST_PASSWORD)):
        yield warning(
            "engine.url",
            f"the password is weak: {weak}",
            "An attacker can guess it.",
            "Generate one with: openssl rand -hex 32",
        )
    if any(server.has_more_rights for server in servers) and not (local and open_ones):
        why = "An attacker who gets this login can do more harm than necessary."
        yield note(
            "engine.url", "the login has more rights than needed", why, "Create a Redis user as in docs/redis-keys.md."
        )


def skew(about: str, ms: float) -> Findings:
    """Yield a finding if a server's clock differs from the clock of this machine."""
    if abs(ms) < SKEW_MS:
        return
    why = "Presence times, tokens and revocations depend on both clocks."
    seconds = abs(ms) / 1000
    found = f"its clock is {seconds:,.1f} s {'ahead of' if ms > 0 else 'behind'} this machine's clock"
    yield Finding(
        "error" if abs(ms) >= TOO_MUCH_SKEW_MS else "warning", about, found, why, "Run NTP (chrony) on both machines."
    )


def _offset(ms: float) -> str:
    seconds = ms / 1000
    return f"off by {seconds:+,.1f} s" if abs(ms) >= SKEW_MS else "in sync"
