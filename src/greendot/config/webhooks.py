"""Settings of webhooks, and their checks."""

from __future__ import annotations

from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from greendot.config.fields import LEAST_SECRET, Mistakes, Secret, about, check_length
from greendot.config.ingress import is_network

HookType = Literal[
    "user.online",
    "user.offline",
    "room.occupied",
    "room.vacated",
    "room.message",
    "notification.created",
    "notification.updated",
    "audit.created",
]
ALL_TYPES: tuple[HookType, ...] = get_args(HookType)
MOST_URL = 2_048
ALLOWED = "webhooks.allow_private"


class Hook(Struct, frozen=True, forbid_unknown_fields=True):
    """Webhook of one tenant's app."""

    url: Annotated[str, about("URL of the app's webhook; empty: no webhook")] = ""
    secret: Annotated[Secret, about("secret that signs requests; at least 32 characters")] = ""
    secret_before: Annotated[Secret, about("previous secret during a rotation; signs requests too")] = ""
    events: Annotated[tuple[HookType, ...], about("types of events that are sent")] = ALL_TYPES


class Webhooks(Hook, frozen=True, forbid_unknown_fields=True):
    """Webhook of tenant `default`, and settings that apply to the webhooks of all tenants."""

    allow_private: Annotated[
        tuple[str, ...], about("networks outside the public internet that webhooks may call; `all`: any")
    ] = ()
    ca_file: Annotated[str, about("CA certificates to trust instead of the system's")] = ""
    timeout_s: Annotated[float, Meta(gt=0, le=120), about("time limit of a whole request")] = 10.0
    batch_max: Annotated[int, Meta(ge=1, le=1_000), about("maximum number of events in one request")] = 100
    batch_wait_ms: Annotated[
        int, Meta(ge=1, le=60_000), about("how long an event may wait for others to share its request")
    ] = 200
    give_up_after_s: Annotated[
        float, Meta(gt=0, le=7 * 86_400), about("an event of a record that fails for this time becomes a dead letter")
    ] = 86_400.0


def check_webhooks(common: Webhooks, own: dict[str, Hook]) -> Mistakes:
    """Yield the mistakes in all webhooks. No mistake repeats a URL, which may contain a secret."""
    yield from check_networks(ALLOWED, common.allow_private)
    if common.url and own.get("default", Hook()).url:
        yield "tenant `default` has two webhooks. Set url in [webhooks] or [tenants.default.webhooks], not in both."
    yield from check_hook("webhooks", common, common)
    for tenant, hook in own.items():
        yield from check_hook(f"tenants.{tenant}.webhooks", hook, common)


def check_hook(section: str, hook: Hook, common: Webhooks) -> Mistakes:
    """Yield the mistakes in one webhook."""
    url, secret = f"{section}.url", f"{section}.secret"
    yield from check_length(secret, hook.secret)
    yield from check_length(f"{section}.secret_before", hook.secret_before)
    if not hook.url:
        if hook.secret:
            yield f"{secret} is set but {url} is not, so nothing would be sent. Set both."
        return
    yield from check_url(url, hook.url, common.allow_private)
    if not hook.secret:
        yield (
            f"{secret} is not set, so the app could not detect forged requests. Generate one with: openssl rand -hex 32"
        )


def check_networks(setting: str, networks: tuple[str, ...]) -> Mistakes:
    """Yield the mistakes in a list of private networks that may be called."""
    for text in networks:
        if text != "all" and not is_network(text):
            yield f"{setting} contains {text!r}. Write networks, such as 10.0.0.0/8 or fd00::/8, or `all`."


def check_url(setting: str, url: str, allow_private: tuple[str, ...], listed_in: str = ALLOWED) -> Mistakes:
    """Yield a mistake if the URL cannot be called, or if requests to it could be read in transit."""
    if wrong := _wrong_with(url):
        yield f"{setting} {wrong}"
    elif url.startswith("http:") and not allow_private:
        yield (
            f"{setting} begins with http://, so requests could be read in transit. Use https://, or, for an app "
            f"in your own network, list that network in {listed_in}."
        )


def check_asked(
    url: tuple[str, str], secret: tuple[str, str], allow_private: tuple[str, ...], without: str
) -> Mistakes:
    """Yield the mistakes in URL and secret of a webhook that the app answers, each with the name of its setting.

    `without` names the effect that a secret without a URL does not have.
    """
    if not url[1]:
        if secret[1]:
            yield f"{secret[0]} is set but {url[0]} is not, so {without}. Set both."
        return
    yield from check_url(*url, allow_private)
    if len(secret[1]) < LEAST_SECRET:
        yield (
            f"{secret[0]} must have at least {LEAST_SECRET} characters, or requests could be forged. "
            "Generate one with: openssl rand -hex 32"
        )


def _wrong_with(url: str) -> str | None:
    """Return what is wrong with the form of a URL; None if nothing is. Its address is checked when it is called."""
    if len(url) > MOST_URL or not url.isascii() or any(sign <= " " or sign in '\\"<>`' for sign in url):
        return f"must have at most {MOST_URL} characters, all of them printable ASCII. Encode other characters as %XX."
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        return "is not a valid URL. Write an IPv6 address as [::1], and a port as a number up to 65535."
    if split.scheme not in ("http", "https"):
        return "must begin with https://."
    if not split.hostname or port == 0:
        return "has no host, or port 0. Write https://HOST/PATH, with another port if needed."
    if "@" in split.netloc:
        return "has a user or password before the host. Remove both; the app checks the signature instead."
    if "%" in split.netloc:
        return "has a % in its host. Write the host without percent-encoding."
    if split.fragment:
        return "has a fragment after #, which is never sent. Remove the fragment."
    return None
