"""Imports go one way, and each driver is known in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from .sources import Module, modules, offences

FLOOR = {"errors", "ids", "clock"}
TOLD = {"logs", "traces"}  # what is said of what happens, by all who do something
CORE = {"core", "protocol"} | FLOOR
PORTS = {"engine", "store"}
SHELL = {"tokens", "metrics"} | PORTS | CORE | TOLD
BESIDE = {"housekeeping", "jobs", "outbound", "push", "push_assembly", "relay", "resolver", "stopping", "webhooks"}
TOP = (
    {"admin", "assembly", "backups", "capacity", "doctor", "files", "gateway", "api", "ports", "probes", "settings"}
    | BESIDE
    | SHELL
)

# What each part may import besides itself. A new part takes its place here.
MAY_IMPORT: dict[str, set[str]] = {
    "": {"server"},  # by name, and only when it is asked for
    "capacity": set(),
    "errors": set(),
    "files": {"errors"},
    "ids": set(),
    "clock": set(),
    "metrics": {"core"},
    "stopping": {"logs"},
    "traces": {"errors"},
    "logs": {"ids"},
    "protocol": FLOOR,
    "core": {"protocol"} | FLOOR,
    "tokens": {"core", "errors", "ids", "logs", "protocol", "resolver"},
    "settings": {"errors", "ids"},
    "engine": CORE | TOLD,
    "store": CORE | TOLD,
    "gateway": SHELL | {"settings"},
    "api": SHELL,
    "admin": {"engine", "store"} | CORE | TOLD,  # of the node, only what `admin.desk` names
    "relay": {"store"} | CORE | TOLD,  # what it sends goes by a protocol of its own, past sockets and engines
    "resolver": {"errors"},
    "outbound": {"core", "errors", "resolver"},
    "multiplexed": {"outbound", "errors"},
    "webhooks": {"engine", "outbound", "store"} | CORE | TOLD,  # of the engine, only what a turn is
    "push": {"engine", "multiplexed", "outbound", "store"} | CORE | TOLD,  # of the engine, only what presence is
    "push_assembly": {"core", "clock", "engine", "errors", "outbound", "push", "settings", "store"},
    "jobs": {"engine", "store"} | CORE | TOLD,  # of the engine, only what presence is, and the bus
    "housekeeping": {"engine", "jobs", "settings", "store"} | CORE,
    "doctor": {"core", "settings"},
    "probes": {"core", "engine", "settings", "store"},
    "backups": {"errors", "files", "settings", "store"},
    "ports": {"admin", "api", "errors", "gateway", "settings"},
    "assembly": TOP - {"assembly", "backups", "capacity", "doctor", "probes"},
    "testing": TOP,
    "cli": TOP,
    "client": {"protocol"} | FLOOR,
    "server": {"protocol", "tokens"} | FLOOR,
    "web": set(),
    "__main__": {"cli"},
}

# Modules only these may import: (module, parts and modules that may).
PUT_TOGETHER = "assembly", "housekeeping", "ports", "push_assembly"
RESERVED = [
    ("settings", {"backups", "cli", "doctor", "gateway.parts", "gateway.node", *PUT_TOGETHER, "probes", "testing"}),
    ("metrics", {"gateway", "api"}),
    ("gateway.node", {"assembly", "ports", "testing"}),
    ("engine.memory", {"assembly", "testing"}),
    ("store.sqlite", {"assembly", "backups", "probes", "testing"}),
    ("store.postgres", {"assembly", "probes", "testing"}),
]

# Everybody else's packages, and the one place each is known in.
DRIVERS = [
    ("picows", {"gateway.websocket", "gateway.connection", "gateway.onlooker", "client", "cli.live"}),
    ("hiredis", {"engine.redis"}),
    ("httptools", {"gateway.http1"}),
    ("starlette", {"api"}),
    ("sqlite3", {"store.sqlite"}),
    ("asyncpg", {"store.postgres"}),
    ("cronsim", {"jobs.timetables"}),
    ("jwt", {"tokens", "push.signing"}),
    ("cryptography", {"tokens", "gateway.certificates", "push.signing", "push.encryption"}),
    ("httpx2", {"tokens.fetching", "server.http"}),
    ("httpcore2", {"outbound"}),
    ("h2", {"multiplexed"}),
    ("click", {"cli"}),
    ("structlog", {"cli"}),
    ("opentelemetry", {"traces.otel"}),
    ("uvloop", {"cli"}),
]

# What would make a decision depend on something other than its arguments.
IMPURE = {"asyncio", "datetime", "os", "random", "secrets", "socket", "threading", "time"}


def within(name: str, places: set[str]) -> bool:
    """Whether a module is one of `places` or in one of them."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_a_part_imports_only_what_is_below_it() -> None:
    def above(module: Module) -> set[str]:
        allowed = MAY_IMPORT[module.part] | {module.part}
        return {name for name in module.own_imports() if name.partition(".")[0] not in allowed}

    assert offences(above) == {}


@pytest.mark.parametrize(("reserved", "places"), RESERVED, ids=[name for name, _ in RESERVED])
def test_what_is_reserved_is_imported_where_it_belongs(reserved: str, places: set[str]) -> None:
    users = {module.name for module in modules() if any(within(name, {reserved}) for name in module.own_imports())}
    assert users, f"nobody imports {reserved}: is it still called so?"
    assert {user for user in users if not within(user, places | {reserved})} == set()


@pytest.mark.parametrize(("driver", "places"), DRIVERS, ids=[name for name, _ in DRIVERS])
def test_a_driver_is_known_in_one_place(driver: str, places: set[str]) -> None:
    users = {module.name for module in modules() if driver in module.foreign_imports()}
    assert users, f"nobody imports {driver}: is it still needed?"
    assert {user for user in users if not within(user, places)} == set()


@pytest.mark.parametrize("port", sorted(PORTS))
def test_engines_and_stores_do_not_know_their_siblings(port: str) -> None:
    for module in modules():
        if module.part == port and module.name != port:
            own = {name for name in module.own_imports() if within(name, {port})}
            # An adapter that is a package (engine.redis) may import its own modules.
            adapter = ".".join(module.name.split(".")[:2])
            # The parts of the port and what adapters share, and the adapter itself.
            parts = (
                "base",
                "answers",
                "counting",
                "hooks",
                "jobs",
                "keys",
                "outbox",
                "people",
                "privacy",
                "pushes",
                "questions",
                "restoring",
                "revocations",
                "schema",
                "snapshots",
                "turns",
            )
            shared = {*(f"{port}.{part}" for part in parts), adapter}
            assert {name for name in own if not within(name, shared)} <= {port}, module.name


@pytest.mark.parametrize("part", ["capacity", "core", "doctor", "protocol"])
def test_decisions_depend_on_nothing_but_their_arguments(part: str) -> None:
    for module in modules():
        if module.part == part:
            assert module.foreign_imports() & IMPURE == set(), module.name


def test_the_walk_sees_the_imports_there_are() -> None:
    """A checker that sees nothing finds nothing."""
    found = {module.name: module for module in modules()}
    assert {"engine.base", "core.presence", "clock"} <= found["engine.memory"].own_imports()
    assert "protocol.commands" in found["gateway.commands"].own_imports()  # from greendot.protocol import commands
    assert {"sqlite3", "threading"} <= found["store.sqlite.thread"].foreign_imports()
    assert len(found) > 50


def test_scripts_of_the_bench_are_not_called_as_folders_of_tests_are() -> None:
    """Both are found by their bare names, in one run of the tests."""
    root = Path(__file__).parents[2]
    scripts = {path.stem for path in (root / "bench").glob("*.py")}
    assert (
        scripts & {path.name for path in (*(root / "tests").iterdir(), *(root / "tests" / "unit").iterdir())} == set()
    )
