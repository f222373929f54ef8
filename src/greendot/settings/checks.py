"""Relations between settings, and addresses: each with a sentence a person can act on."""

from __future__ import annotations

from string import ascii_letters, digits
from urllib.parse import parse_qs, urlsplit

from greendot.errors import ConfigError
from greendot.settings.auth import check_auth
from greendot.settings.door import check_door
from greendot.settings.names import check_id
from greendot.settings.sections import POSTGRES, Limits, Privacy, Settings
from greendot.settings.visibility import check_visibility
from greendot.settings.webhooks import check_webhooks

REDIS = (
    "redis://",
    "rediss://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
)
_PREFIX = {*ascii_letters, *digits, *"_.:-"}


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
            server.log in ("debug", "info", "warning", "error"),
            f"server.log is {server.log!r}; it must be one of debug, info, warning, error.",
        ),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ConfigError(sentence)
    for name in settings.kinds:
        check_id("kinds: the name", name)
    for name in settings.tenants:
        check_id("tenants: the name", name)
    _check_limits("limits", settings.limits)
    for name, tenant in settings.tenants.items():
        _check_limits(f"tenants.{name}.limits", tenant.limits)
    check_visibility("visibility", settings.visibility, settings.webhooks)
    for name, tenant in settings.tenants.items():
        check_visibility(f"tenants.{name}.visibility", tenant.visibility, settings.webhooks)
    _check_celebrities(settings)
    check_door(settings.door, settings.tls)
    check_auth(settings.auth)
    _check_privacy(settings.privacy)
    _check_urls(settings)
    check_webhooks(settings.webhooks, {name: tenant.webhooks for name, tenant in settings.tenants.items()})


def _check_limits(section: str, limits: Limits) -> None:
    if limits.commands_burst < limits.commands_per_s:
        raise ConfigError(
            f"{section}.commands_burst ({limits.commands_burst}) must be at least {section}.commands_per_s "
            f"({limits.commands_per_s}). Raise commands_burst."
        )


def _check_privacy(privacy: Privacy) -> None:
    if privacy.hash_key and len(privacy.hash_key) < 32:
        raise ConfigError(
            "privacy.hash_key is shorter than 32 characters and could be guessed. Make one with: openssl rand -hex 32"
        )


def _check_celebrities(settings: Settings) -> None:
    presence = settings.presence
    if presence.celebrity_polling < presence.celebrity_watchers:
        raise ConfigError(
            f"presence.celebrity_polling ({presence.celebrity_polling}) must not be below presence.celebrity_watchers "
            f"({presence.celebrity_watchers}): telling in slices comes before not telling. Raise celebrity_polling."
        )
    for named in presence.polled:
        tenant, slash, user = named.partition("/")
        if not slash:
            raise ConfigError(
                f"presence.polled names {named!r}; write tenant/user, such as default/{named or 'alice'}."
            )
        check_id("presence.polled: the tenant", tenant)
        check_id("presence.polled: the user", user)


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
