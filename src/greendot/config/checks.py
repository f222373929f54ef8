"""Checks of relations between settings, and of addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from string import ascii_letters, digits
from typing import Any
from urllib.parse import parse_qs, urlsplit

from greendot.config.auth import check_auth
from greendot.config.before_publish import check_before_publish
from greendot.config.centrifuge import check_centrifuge
from greendot.config.fields import Mistakes, check_length, check_name
from greendot.config.ingress import check_door
from greendot.config.jobs import check_jobs
from greendot.config.monitoring import check_admin, check_metrics, check_traces
from greendot.config.push import check_push
from greendot.config.pusher import check_pusher
from greendot.config.settings import LOCAL, POSTGRES, Limits, Settings
from greendot.config.visibility import check_visibility
from greendot.config.webhooks import check_networks, check_webhooks

REDIS = (
    *(f"{base}{kind}://" for kind in ("", "+sentinel", "+cluster") for base in ("redis", "rediss")),
    "unix://",
    "redis+unix://",
)
LATEST_REPEAT = 0.9  # share of typing.ttl_s; the rest is time for a repeated start to arrive
_PREFIX = {*ascii_letters, *digits, *"_.:-"}


def check(settings: Settings) -> Mistakes:
    """Yield the mistakes in settings whose values are valid one by one."""
    yield from (sentence for holds, sentence in _rules(settings) if not holds)
    for name in settings.kinds:
        yield from check_name("kinds: the name", name)
    for name in settings.tenants:
        yield from check_name("tenants: the name", name)
    yield from _check_shared(settings, "limits", _check_limits)
    yield from _check_shared(settings, "visibility", partial(check_visibility, common=settings.webhooks))
    yield from _check_shared(settings, "before_publish", partial(check_before_publish, common=settings.webhooks))
    yield from _check_shared(settings, "centrifuge", partial(check_centrifuge, common=settings.webhooks))
    yield from check_networks("push.allow_private", settings.push.allow_private)
    yield from _check_shared(settings, "push", partial(check_push, allow_private=settings.push.allow_private))
    yield from _check_celebrities(settings)
    yield from check_door(settings.door, settings.tls)
    yield from check_admin(settings.admin, settings.server.port)
    ports = {"server.port": settings.server.port, "admin.port": settings.admin.port}
    yield from check_metrics(settings.metrics, ports, settings.server.workers)
    yield from check_auth(settings.auth)
    yield from check_length("privacy.hash_key", settings.privacy.hash_key)
    yield from check_length("server.dev_gate", settings.server.dev_gate)
    yield from _check_engine(settings)
    yield from _check_store(settings)
    yield from _check_outbox(settings)
    yield from check_jobs(settings.jobs)
    yield from check_traces(settings.traces)
    apps = {"pusher": settings.pusher}
    apps |= {f"tenants.{name}.pusher": tenant.pusher for name, tenant in settings.tenants.items()}
    yield from check_pusher(apps, settings.webhooks)
    yield from check_webhooks(settings.webhooks, {name: tenant.webhooks for name, tenant in settings.tenants.items()})


def _rules(settings: Settings) -> Iterator[tuple[bool, str]]:
    """Yield the relations between settings: whether each holds, and the mistake if it does not."""
    presence, typing, node, server = settings.presence, settings.typing, settings.node, settings.server
    yield (
        presence.dead_after_s >= 2 * presence.heartbeat_s,
        f"presence.dead_after_s ({presence.dead_after_s:g}) must be at least twice presence.heartbeat_s "
        f"({presence.heartbeat_s:g}), or one lost heartbeat closes a healthy connection. "
        "Raise dead_after_s or lower heartbeat_s.",
    )
    yield (
        presence.clean_grace_s <= presence.grace_s,
        f"presence.clean_grace_s ({presence.clean_grace_s:g}) must not exceed presence.grace_s "
        f"({presence.grace_s:g}), because a clean close is the clearer sign of leaving. Lower clean_grace_s.",
    )
    yield (
        typing.throttle_s < typing.ttl_s,
        f"typing.throttle_s ({typing.throttle_s:g}) must be below typing.ttl_s ({typing.ttl_s:g}), or "
        "users who keep typing appear to stop in between. Raise ttl_s or lower throttle_s.",
    )
    yield (
        typing.repeat_s == 0 or typing.repeat_s >= typing.throttle_s,
        f"typing.repeat_s ({typing.repeat_s:g}) must not be below typing.throttle_s ({typing.throttle_s:g}), or the "
        "server drops repeated starts. Raise repeat_s, lower throttle_s, or leave repeat_s out.",
    )
    repeat_s = typing.repeats_every_s
    yield (
        repeat_s <= LATEST_REPEAT * typing.ttl_s or typing.throttle_s >= typing.ttl_s,
        f"clients would repeat a typing start every {repeat_s:.3g} s (typing.repeat_s). This must be at most "
        f"{LATEST_REPEAT:.0%} of typing.ttl_s ({typing.ttl_s:g}), or users who keep typing appear to stop in between. "
        f"Raise ttl_s or lower {'repeat_s' if typing.repeat_s else f'throttle_s ({typing.throttle_s:g})'}.",
    )
    yield (
        node.lease_s >= 2 * node.renew_s,
        f"node.lease_s ({node.lease_s:g}) must be at least twice node.renew_s ({node.renew_s:g}), or one "
        "late renewal makes a healthy node look dead. Raise lease_s or lower renew_s.",
    )
    yield (
        server.log in ("debug", "info", "warning", "error"),
        f"server.log is {server.log!r} but must be one of debug, info, warning, error.",
    )


def _check_shared(settings: Settings, section: str, check_section: Callable[[str, Any], Mistakes]) -> Mistakes:
    """Check a section and the same section of each tenant. Report a mistake that tenants inherit once."""
    shared = [*check_section(section, getattr(settings, section))]
    yield from shared
    for name, tenant in settings.tenants.items():
        own = f"tenants.{name}.{section}"
        found = check_section(own, getattr(tenant, section))
        yield from (mistake for mistake in found if mistake.replace(own, section) not in shared)


def _check_limits(section: str, limits: Limits) -> Mistakes:
    if limits.commands_burst < limits.commands_per_s:
        yield (
            f"{section}.commands_burst ({limits.commands_burst}) must be at least {section}.commands_per_s "
            f"({limits.commands_per_s}). Raise commands_burst."
        )


def _check_celebrities(settings: Settings) -> Mistakes:
    presence = settings.presence
    if presence.celebrity_polling < presence.celebrity_watchers:
        yield (
            f"presence.celebrity_polling ({presence.celebrity_polling}) must not be below presence.celebrity_watchers "
            f"({presence.celebrity_watchers}), because delivery in slices comes first. Raise celebrity_polling."
        )
    for named in presence.polled:
        tenant, slash, user = named.partition("/")
        if not slash:
            yield (
                f"presence.polled contains {named!r}, which has no tenant. "
                f"Write tenant/user, such as default/{named or 'alice'}."
            )
            continue
        yield from check_name("presence.polled: the tenant", tenant)
        yield from check_name("presence.polled: the user", user)


def _check_engine(settings: Settings) -> Mistakes:
    engine, workers = settings.engine.url, settings.server.workers
    if engine not in ("memory", LOCAL) and not engine.startswith(REDIS):
        yield (
            f"engine.url {_beginning(engine)} but must be `memory`, `local` or begin with "
            f"{' or '.join(REDIS[:2])} (one server), unix://, redis+sentinel:// or redis+cluster://."
        )
    if workers > 1 and engine == "memory":
        yield (
            f"{workers} workers cannot share the memory engine: each would see only its own users. "
            "Leave out --engine (the workers then share a private Valkey or Redis), or give the URL of a Redis: "
            "--engine redis://localhost:6379"
        )
    if len(settings.engine.prefix) > 64 or not set(settings.engine.prefix) <= _PREFIX:
        yield f"engine.prefix is {settings.engine.prefix!r} but may have only letters, digits and _ . : -, at most 64."


def _check_store(settings: Settings) -> Mistakes:
    store = settings.store.url
    if settings.server.workers > 1 and settings.store_path == ":memory:":
        yield "several workers cannot share a store in memory. Use a file: --store sqlite:///FILE"
    if settings.on_postgres:
        yield from _check_postgres("store.url", store)
    elif store and not store.startswith("sqlite:///"):
        yield (
            f"store.url {_beginning(store)} but must begin with postgresql:// or be sqlite:///FILE "
            "(sqlite:////var/lib/greendot.db for an absolute path, sqlite:///:memory: for a store without a file)."
        )


def _check_outbox(settings: Settings) -> Mistakes:
    url = settings.outbox.url
    if url == "store" and not settings.on_postgres:
        yield (
            "outbox.url is `store`, but the store is not in PostgreSQL. Set outbox.url to the app's database "
            "(postgresql://HOST/DATABASE), or store.url to a PostgreSQL."
        )
    if url.startswith(POSTGRES):
        yield from _check_postgres("outbox.url", url)
    elif url not in ("", "store"):
        yield (
            f"outbox.url {_beginning(url)} but must begin with postgresql:// or be `store` (the database of store.url)."
        )


def _check_postgres(setting: str, url: str) -> Mistakes:
    try:
        split = urlsplit(url)
    except ValueError:
        yield f"{setting} is not a valid URL. Write an IPv6 address as [::1]."
        return
    if "@" in split.path + split.query + split.fragment or split.netloc.count("@") > 1:
        # Part of the password would be read as the host, and hosts are printed.
        yield (
            f"{setting} has an unencoded / ? # or @ in the user or password, or an @ after the host. Write them as "
            "%2F %3F %23 and %40."
        )
    if {"password", "user", "passfile"} & parse_qs(split.query).keys():
        yield f"{setting} has a user or password in the query. Write them before the host: postgresql://USER:PASSWORD@HOST/DATABASE."


def _beginning(url: str) -> str:
    """Describe how a URL begins, without parts that may be secret."""
    scheme, separator, _ = url.partition("://")
    return f"begins with {scheme!r}" if separator else "has no ://"
