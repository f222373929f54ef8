"""Imports follow one ordered list, and each driver is imported in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from .sources import Module, modules, offences

# All parts of the package, lowest first. A module imports its own part and parts before it. Add a new part in its place
# here.
FLOOR = ("errors", "ids", "clock", "protocol")
MODELS = "pure models"  # model.py and *_model.py of any part: they import the floor and other models
ORDER = [
    *FLOOR,
    MODELS,
    "config",
    "telemetry",
    "engine",
    "store",
    "transport",
    "http",
    "node",
    "limits",
    "auth",
    "visibility",
    "presence",
    "rooms",
    "inbox",
    "push",
    "connect",
    "compat",
    "webhooks",
    "app_outbox",
    "jobs",
    "admin",
    "ops",
    "app",
]
# Parts outside the list, with their imports.
BESIDE: dict[str, set[str]] = {
    "": {"sdk"},  # greendot.Server, loaded on first access
    "__main__": {"cli"},
    "cli": {*ORDER},
    "client": {*FLOOR},
    "integrations": {*FLOOR, "sdk"},
    "sdk": {*FLOOR},
    "server": {"sdk"},
    "testing": {*ORDER},
    "web": set(),
}

# Modules with restricted importers: (module, allowed parts and modules).
RESERVED = [
    ("config", {"app", "cli", "ops", "telemetry.spans", "telemetry.log_output", "testing"}),
    ("app.node", {"app", "testing"}),
    ("engine.memory", {"app", "testing"}),
    ("store.sqlite", {"app", "ops", "testing"}),
    ("store.postgres", {"app", "ops", "testing"}),
]

# HTTP routes of each capability, and the module that merges them.
FOREIGN = {
    "app.centrifuge",
    "app.pusher",
    "compat.centrifuge.http",
    "compat.pusher.http",
}  # routes of foreign protocols
ROUTES = {
    f"{part}.http" for part in ("admin", "app", "auth", "connect", "inbox", "presence", "push", "rooms", "visibility")
}
ROUTES |= {"rooms.moderation_http", "rooms.reactions_http", "rooms.restrictions_http"}

# Third-party packages, with the one place that imports each.
DRIVERS = [
    ("picows", {"client", "cli._admin_socket"}),
    ("hiredis", {"engine.redis"}),
    ("httptools", {"transport.http1"}),
    ("starlette", {"http", "app.demo", "app.listeners", *FOREIGN, "auth.api_keys", *ROUTES}),
    ("sqlite3", {"store.sqlite"}),
    ("asyncpg", {"store.postgres"}),
    ("cronsim", {"jobs.timetable"}),
    ("jwt", {"auth", "push.providers.signing"}),
    ("cryptography", {"auth", "transport.tls", "push.providers"}),
    ("httpx2", {"auth.jwks_fetch", "sdk.http"}),
    ("httpcore2", {"transport.http_client"}),
    ("h2", {"transport.http2_client"}),
    ("click", {"cli"}),
    ("structlog", {"telemetry.log_output"}),
    ("opentelemetry", {"telemetry.otel"}),
    ("prometheus_client", {"telemetry.prometheus"}),
    ("uvloop", {"cli"}),
    ("django", {"integrations.django"}),
    ("fastapi", {"integrations.fastapi"}),
    ("anyio", {"integrations.fastapi"}),
]

# Modules that make a decision depend on more than its arguments.
IMPURE = {"asyncio", "datetime", "os", "random", "secrets", "socket", "threading", "time"}
PURE_PARTS = {"protocol", "ops.capacity", "ops.doctor"}


def within(name: str, places: set[str]) -> bool:
    """Return whether a module is one of `places` or inside one of them."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def is_model(name: str) -> bool:
    leaf = name.rpartition(".")[2]
    return leaf == "model" or leaf.endswith("_model")


def place(name: str) -> str:
    """Return the entry of the list that a module belongs to."""
    return MODELS if is_model(name) else name.partition(".")[0]


def may_import(name: str, other: str) -> bool:
    own, its = place(name), place(other)
    if own == its or name.partition(".")[0] == its:
        return True
    if own in BESIDE:
        return its in BESIDE[own]
    return its in ORDER and ORDER.index(its) < ORDER.index(own)


def test_imports_go_down_the_list() -> None:
    # `from greendot.presence import model` also names the package, which has only a docstring.
    packages = {module.name for module in modules() if module.path.name == "__init__.py" and len(module.tree.body) < 2}

    def upward(module: Module) -> set[str]:
        return {name for name in module.own_imports() - packages if not may_import(module.name, name)}

    assert offences(upward) == {}


def test_no_module_imports_itself_through_others() -> None:
    # Packages have a docstring, or export their modules.
    names = {module.name for module in modules() if module.path.name != "__init__.py"}
    graph = {module.name: module.own_imports() & names for module in modules() if module.name in names}
    while True:
        leaves = {name for name, imported in graph.items() if not imported & graph.keys()}
        if not leaves:
            break
        for name in leaves:
            del graph[name]
    assert {name: imported & graph.keys() for name, imported in graph.items()} == {}


@pytest.mark.parametrize(("reserved", "places"), RESERVED, ids=[name for name, _ in RESERVED])
def test_what_is_reserved_is_imported_where_it_belongs(reserved: str, places: set[str]) -> None:
    users = {module.name for module in modules() if any(within(name, {reserved}) for name in module.own_imports())}
    assert users, f"no module imports {reserved}; correct or remove its entry"
    assert {user for user in users if not within(user, places | {reserved})} == set()


@pytest.mark.parametrize(("driver", "places"), DRIVERS, ids=[name for name, _ in DRIVERS])
def test_a_driver_is_known_in_one_place(driver: str, places: set[str]) -> None:
    users = {module.name for module in modules() if driver in module.foreign_imports()}
    assert users, f"no module imports {driver}; remove its entry"
    assert {user for user in users if not within(user, places)} == set()


@pytest.mark.parametrize(
    ("adapter", "others"),
    [
        ("engine.memory", {"engine.redis"}),
        ("engine.redis", {"engine.memory"}),
        ("store.sqlite", {"store.postgres"}),
        ("store.postgres", {"store.sqlite"}),
    ],
)
def test_adapters_do_not_know_each_other(adapter: str, others: set[str]) -> None:
    own = [module for module in modules() if within(module.name, {adapter})]
    assert own, f"{adapter} does not exist"
    assert {module.name for module in own if any(within(name, others) for name in module.own_imports())} == set()


@pytest.mark.parametrize("port", ["engine", "store"])
def test_ports_do_not_know_their_adapters(port: str) -> None:
    adapters = {"engine.memory", "engine.redis", "store.sqlite", "store.postgres"}
    for module in modules():
        if module.part == port and not within(module.name, adapters):
            assert {name for name in module.own_imports() if within(name, adapters)} == set(), module.name


def test_models_depend_on_nothing_but_their_arguments() -> None:
    pure = [module for module in modules() if is_model(module.name) or within(module.name, PURE_PARTS)]
    assert len(pure) > 40
    assert {module.name: found for module in pure if (found := module.foreign_imports() & IMPURE)} == {}


def test_packages_of_capabilities_hold_a_docstring_only() -> None:
    """Engine and store import models from these packages, which must not load services."""
    keep = {"cli", "client", "config", "sdk", "testing", "store.postgres", "store.sqlite", "store.schema", ""}
    keep |= {"integrations.django"}
    for module in modules():
        if module.path.name == "__init__.py" and module.name not in keep:
            assert len(module.tree.body) <= 1, module.name


def test_the_walk_sees_the_imports_there_are() -> None:
    """Guard against a checker that sees no imports and so finds nothing."""
    found = {module.name: module for module in modules()}
    assert {"engine.port", "presence.model", "clock"} <= found["engine.memory"].own_imports()
    assert "protocol.commands" in found["connect.commands"].own_imports()  # from greendot.protocol import commands
    assert {"sqlite3", "threading"} <= found["store.sqlite.thread"].foreign_imports()
    assert len(found) > 50


def test_scripts_of_the_bench_are_not_called_as_folders_of_tests_are() -> None:
    """Both are imported by their bare names in one test run."""
    root = Path(__file__).parents[2]
    scripts = {path.stem for path in (root / "bench").glob("*.py")}
    assert (
        scripts & {path.name for path in (*(root / "tests").iterdir(), *(root / "tests" / "unit").iterdir())} == set()
    )
