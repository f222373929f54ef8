"""Settings: frozen, nested, units in the names. From flags, then the environment, then a TOML file, then defaults.

`GREENDOT_PRESENCE_GRACE_S` in the environment is `grace_s` under `[presence]` in the file. Relations between
settings are checked once, here, with a sentence a person can act on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from string import ascii_letters, digits
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, fields

from greendot.errors import ConfigError
from greendot.ids import ID_RULE, valid_id

REDIS = (
    "redis://",
    "rediss://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
)
POSTGRES = ("postgresql://", "postgres://")
_PREFIX = {*ascii_letters, *digits, *"_.:-"}

Seconds = Annotated[float, Meta(ge=0, le=30 * 86_400)]
Positive = Annotated[float, Meta(gt=0, le=30 * 86_400)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "0.0.0.0"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    workers: Annotated[int, Meta(ge=1, le=1024)] = 1
    data_dir: str = ".greendot"  # the embedded store and, in dev mode, the generated secret and key
    drain_s: Seconds = 1.0  # how long a stopping server waits for its sockets to close
    log: str = "info"  # debug, info, warning or error
    dev: bool = False


class Auth(Struct, frozen=True, forbid_unknown_fields=True):
    secret: str = ""  # HS256; at least 32 characters


class Api(Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""  # a first API key, for tenant `default`


class Presence(Struct, frozen=True, forbid_unknown_fields=True):
    heartbeat_s: Positive = 30.0  # how often a client is asked to be heard
    dead_after_s: Positive = 75.0  # a connection silent for so long is closed
    grace_s: Seconds = 30.0  # a lost socket's session counts for so long
    clean_grace_s: Seconds = 5.0  # the same after a clean close by the client
    silent_grace_s: Seconds = 15.0  # the same after `dead_after_s` of silence
    idle_s: Positive = 300.0  # without activity for so long is idle
    last_seen_days: Annotated[float, Meta(gt=0, le=3650)] = 30.0


class Typing(Struct, frozen=True, forbid_unknown_fields=True):
    ttl_s: Positive = 5.0  # how long a start is held
    throttle_s: Seconds = 2.0  # at most one start per user, room and this is let through
    large_room: Count = 100  # above so many listeners only the count is sent


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    lease_s: Positive = 15.0  # a node silent for so long is dead
    renew_s: Positive = 5.0


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True  # false switches the rate limits off (load tests); sizes and counts stay
    commands_per_s: Count = 50  # per connection
    commands_burst: Count = 200
    watches: Count = 10_000  # per connection
    rooms: Count = 500  # per connection


class Engine(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = "memory"  # or redis://, rediss://, redis+sentinel://, redis+cluster://
    prefix: str = ""  # of every key and channel in Redis, when it is shared with others
    when_away: Literal["refuse", "accept"] = "refuse"  # new clients while Redis cannot be reached
    stale_after_s: Seconds = 30.0  # when watchers are told that Redis is away
    restore_batch: Count = 500  # sessions told to Redis together, ten times a second, after it lost them


class Store(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = ""  # empty: sqlite, greendot.db in the data directory; or sqlite:///FILE, postgresql://
    pool: Annotated[int, Meta(ge=1, le=1_000)] = 8  # connections to PostgreSQL, per process
    migrate: bool = False  # bring old tables in PostgreSQL up to date at the start; `greendot migrate` does it too


class Outbox(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = ""  # empty: there is none; `store`: in the store's database; or postgresql://, the app's own
    poll_s: Annotated[float, Meta(gt=0, le=60)] = 1.0  # how often it is looked at when nothing tells of new rows


class Inbox(Struct, frozen=True, forbid_unknown_fields=True):
    keep_days: Annotated[float, Meta(gt=0, le=36_500)] = 90.0  # notifications older than this are removed


class Kind(Struct, frozen=True, forbid_unknown_fields=True):
    promise: Literal["ephemeral", "recomputable", "durable", "acknowledged"] = "durable"
    bus: Literal["full", "hint"] = "full"  # hint: the content of a notification stays in the store


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All of them. `load` makes one from its sources and checks it."""

    server: Server = Server()
    auth: Auth = Auth()
    api: Api = Api()
    presence: Presence = Presence()
    typing: Typing = Typing()
    node: Node = Node()
    limits: Limits = Limits()
    engine: Engine = Engine()
    store: Store = Store()
    outbox: Outbox = Outbox()
    inbox: Inbox = Inbox()
    kinds: dict[str, Kind] = {}  # of notifications, by name; in the file only

    @property
    def on_postgres(self) -> bool:
        return self.store.url.startswith(POSTGRES)

    @property
    def store_path(self) -> str:
        """The SQLite file, or `:memory:`; empty with PostgreSQL."""
        if self.on_postgres:
            return ""
        if not self.store.url:
            return str(Path(self.server.data_dir) / "greendot.db")
        return self.store.url.removeprefix("sqlite:///")

    @property
    def outbox_url(self) -> str:
        """The database with the outbox; empty if there is none."""
        return self.store.url if self.outbox.url == "store" else self.outbox.url


Sources = Mapping[str, Mapping[str, Any]]  # section → key → value


def load(file: Path | None, environment: Mapping[str, str], flags: Sources) -> Settings:
    """The settings from their sources, checked. ConfigError names the source, the setting and what to do."""
    merged: dict[str, dict[str, Any]] = {}
    for source, values in (
        (str(file), _read_file(file) if file else {}),
        ("the environment", _read_environment(environment)),
        ("the command line", flags),
    ):
        _convert(source, values)
        for section, keys in values.items():
            merged.setdefault(section, {}).update(keys)
    settings = _convert("", merged)
    check(settings)
    return settings


def check(settings: Settings) -> None:
    """Raise ConfigError for the first relation between settings that does not hold."""
    presence, typing, node, server = settings.presence, settings.typing, settings.node, settings.server
    rules = [
        (
            presence.dead_after_s >= 2 * presence.heartbeat_s,
            f"presence.dead_after_s ({presence.dead_after_s:g}) must be at least twice presence.heartbeat_s "
            f"({presence.heartbeat_s:g}), or one lost heartbeat closes a healthy connection. "
            "Raise dead_after_s or lower heartbeat_s.",
        ),
        (
            presence.clean_grace_s <= presence.grace_s,
            f"presence.clean_grace_s ({presence.clean_grace_s:g}) must not exceed presence.grace_s "
            f"({presence.grace_s:g}): a clean close is the surer sign of leaving. Lower clean_grace_s.",
        ),
        (
            typing.throttle_s < typing.ttl_s,
            f"typing.throttle_s ({typing.throttle_s:g}) must be below typing.ttl_s ({typing.ttl_s:g}), or "
            "people who go on typing seem to stop in between. Raise ttl_s or lower throttle_s.",
        ),
        (
            node.lease_s >= 2 * node.renew_s,
            f"node.lease_s ({node.lease_s:g}) must be at least twice node.renew_s ({node.renew_s:g}), or one "
            "late renewal makes a healthy node look dead. Raise lease_s or lower renew_s.",
        ),
        (
            settings.limits.commands_burst >= settings.limits.commands_per_s,
            "limits.commands_burst must be at least limits.commands_per_s. Raise commands_burst.",
        ),
        (
            not settings.auth.secret or len(settings.auth.secret) >= 32,
            "auth.secret is shorter than 32 characters and could be guessed. Make one with: openssl rand -hex 32",
        ),
        (
            server.log in ("debug", "info", "warning", "error"),
            f"server.log is {server.log!r}; it must be one of debug, info, warning, error.",
        ),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ConfigError(sentence)
    for name in settings.kinds:
        check_id("kinds: the name", name)
    _check_urls(settings)


def _check_urls(settings: Settings) -> None:
    engine, store = settings.engine.url, settings.store.url
    if engine != "memory" and not engine.startswith(REDIS):
        raise ConfigError(
            f"engine.url begins with {engine.partition('://')[0]!r}; it must be `memory` or begin with one of "
            f"{', '.join(REDIS[:2])} (one server), redis+sentinel://, redis+cluster://."
        )
    if settings.server.workers > 1 and engine == "memory":
        raise ConfigError(
            f"{settings.server.workers} workers cannot share the memory engine: each would see only its own users. "
            "Use --workers 1, or a Redis that all of them share: --engine redis://localhost:6379"
        )
    if settings.server.workers > 1 and settings.store_path == ":memory:":
        raise ConfigError("workers cannot share a store in memory: give them a file with --store sqlite:///FILE.")
    if len(settings.engine.prefix) > 64 or not set(settings.engine.prefix) <= _PREFIX:
        raise ConfigError(
            f"engine.prefix is {settings.engine.prefix!r}; at most 64 letters, digits and _ . : - may be."
        )
    _check_outbox(settings)
    if settings.on_postgres:
        _check_postgres("store.url", store)
    elif store and not store.startswith("sqlite:///"):
        raise ConfigError(
            f"store.url begins with {store.partition('://')[0]!r}; it must begin with postgresql://, or be "
            "sqlite:///FILE (sqlite:////var/lib/greendot.db for an absolute path, sqlite:///:memory: to keep nothing)."
        )


def _check_outbox(settings: Settings) -> None:
    url = settings.outbox.url
    if url == "store" and not settings.on_postgres:
        raise ConfigError(
            "outbox.url is `store`, and the store is not in PostgreSQL. Give it the URL of the app's database "
            "(postgresql://HOST/DATABASE), or a store there."
        )
    if url.startswith(POSTGRES):
        _check_postgres("outbox.url", url)
    elif url not in ("", "store"):
        raise ConfigError(
            f"outbox.url begins with {url.partition('://')[0]!r}; it must begin with postgresql://, or be `store`: the "
            "store's own database."
        )


def _check_postgres(setting: str, url: str) -> None:
    try:
        split = urlsplit(url)
    except ValueError:
        raise ConfigError(f"{setting}: it is not a URL: an IPv6 address is written [::1].") from None
    if "@" in split.path + split.query + split.fragment or split.netloc.count("@") > 1:
        # Half of a password would be taken for a host, and repeated where hosts are.
        raise ConfigError(
            f"{setting}: a password's / ? # and @ are written %2F %3F %23 and %40, and so is any other @ but the last."
        )
    if {"password", "user", "passfile"} & parse_qs(split.query).keys():
        raise ConfigError(
            f"{setting}: user and password come before the host: postgresql://USER:PASSWORD@HOST/DATABASE."
        )


def check_id(what: str, text: str) -> str:
    """`text` if it may be an id, else ConfigError."""
    if not valid_id(text):
        raise ConfigError(f"{what} {text!r} is not a valid id: {ID_RULE}.")
    return text


def _read_file(path: Path) -> Sources:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _read_environment(environment: Mapping[str, str]) -> Sources:
    values: dict[str, dict[str, Any]] = {}
    for section in _sections():
        prefix = f"GREENDOT_{section.name}_".upper()
        for name, value in environment.items():
            if name.startswith(prefix):  # a misspelt one is found later, like one in the file
                values.setdefault(section.name, {})[name.removeprefix(prefix).lower()] = value
    return values


def strange_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings of ours and are none, each with what may be meant."""
    known = [f"GREENDOT_{s.name}_{field.name}".upper() for s in _sections() for field in fields(s.type)]
    sections = tuple(f"GREENDOT_{section.name}_".upper() for section in _sections())
    strange = [name for name in environment if name.startswith("GREENDOT_") and not name.startswith(sections)]
    return [f"{name} is not a setting.{_nearest(name, known)}" for name in strange if get_close_matches(name, known, 1)]


def _convert(source: str, values: Sources) -> Settings:
    for section, keys in values.items():
        _known(source, section, keys)
    try:
        # Not strict: the environment has only strings, and "30" must do for a number there.
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"in {source}: {error}".replace("`$.", "`")) from None


def _known(source: str, section: str, keys: Any) -> None:
    sections: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
    if section not in sections:
        raise ConfigError(f"in {source}: no section is called [{section}].{_nearest(section, sections)}")
    if not isinstance(keys, Mapping):
        raise ConfigError(f"in {source}: [{section}] must be a section of keys.")
    if section == "kinds":
        for name, kind in keys.items():
            if not isinstance(kind, Mapping):
                raise ConfigError(f"in {source}: [kinds] has one section for each kind, such as [kinds.{name}].")
            _all_known(source, f"kinds.{name}", kind, Kind)
    else:
        _all_known(source, section, keys, sections[section])


def _all_known(source: str, section: str, keys: Mapping[str, Any], kind: Any) -> None:
    known = [field.name for field in fields(kind)]
    for key in keys:
        if key not in known:
            raise ConfigError(f"in {source}: [{section}] has no setting {key!r}.{_nearest(key, known)}")


def _sections() -> list[FieldInfo]:
    """Those with fixed keys, which may also come from the environment."""
    return [field for field in fields(Settings) if field.name != "kinds"]


def _nearest(word: str, known: Any) -> str:
    found = get_close_matches(word, list(known), n=1)
    return f" Did you mean {found[0]!r}?" if found else f" There are: {', '.join(known)}."
