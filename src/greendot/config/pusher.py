"""Settings of apps that use the Pusher protocol, and their checks."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from greendot.config.fields import Mistakes, Rate, Secret, about
from greendot.config.webhooks import Webhooks, check_url

PusherHookType = Literal[
    "channel_occupied",
    "channel_vacated",
    "member_added",
    "member_removed",
    "client_event",
    "cache_miss",
    "subscription_count",
]
ALL_TYPES: tuple[PusherHookType, ...] = get_args(PusherHookType)
LEAST_SECRET = 16  # characters; secrets of Pusher have 20


class Pusher(Struct, frozen=True, forbid_unknown_fields=True):
    """App of one tenant for clients and libraries of Pusher Channels."""

    enabled: Annotated[bool, about("false turns the Pusher protocol off, even if the keys are set")] = True
    app_id: Annotated[str, about("id of the app in URLs of the HTTP API; some libraries need a number")] = ""
    key: Annotated[str, about("public key of the app, which clients connect with")] = ""
    secret: Annotated[Secret, about("secret of the app; at least 16 characters")] = ""
    secret_before: Annotated[Secret, about("previous secret during a rotation; accepted too")] = ""
    client_events: Annotated[bool, about("whether clients may send client events")] = True
    client_events_per_s: Annotated[int, Meta(ge=1, le=10_000), about("client events of one connection")] = 10
    presence_members: Annotated[Rate, about("members of a presence channel; 0: no limit")] = 100
    event_bytes: Annotated[int, Meta(ge=1, le=60_000), about("data of one event")] = 10_240
    subscription_count: Annotated[bool, about("whether subscribers get the number of subscribers")] = False
    webhook_url: Annotated[str, about("URL of the app's Pusher webhook; empty: none")] = ""
    webhook_events: Annotated[tuple[PusherHookType, ...], about("webhook events that are sent")] = ALL_TYPES

    @property
    def is_on(self) -> bool:
        return self.enabled and bool(self.app_id and self.key and self.secret)


def check_pusher(apps: dict[str, Pusher], common: Webhooks) -> Mistakes:
    """Yield the mistakes in the apps of all tenants, given by section."""
    if apps["pusher"].is_on and apps.get("tenants.default.pusher", Pusher()).is_on:
        yield "tenant `default` has two apps. Set the keys in [pusher] or [tenants.default.pusher], not in both."
    seen: dict[tuple[str, str], str] = {}
    for section, app in apps.items():
        if not app.enabled:
            continue
        given = [name for name in ("app_id", "key", "secret") if getattr(app, name)]
        if given and len(given) < 3:
            yield f"[{section}] has {' and '.join(given)} only. Set app_id, key and secret, or none of them."
        for name in ("app_id", "key"):
            value = getattr(app, name)
            if value and not (value.isascii() and value.replace("-", "").replace("_", "").isalnum()):
                yield f"{section}.{name} may have only letters, digits, - and _."
            if value and (other := seen.setdefault((name, value), section)) != section:
                yield f"{section}.{name} is the same as in [{other}]. Each app needs its own."
        for name in ("secret", "secret_before"):
            if 0 < len(getattr(app, name)) < LEAST_SECRET:
                yield f"{section}.{name} is shorter than {LEAST_SECRET} characters, so it could be guessed."
        if app.webhook_url:
            yield from check_url(f"{section}.webhook_url", app.webhook_url, common.allow_private)
