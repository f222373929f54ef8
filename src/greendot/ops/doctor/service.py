"""Checks of a running service: limits, calls to apps, log and metrics."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from greendot.config import Settings
from greendot.ops.doctor.access import is_local
from greendot.ops.doctor.finding import Findings, note, or_ok, warning

_WORST = tuple(ip_network(text) for text in ("127.0.0.0/8", "169.254.0.0/16", "::1/128", "fe80::/10"))


def limits(settings: Settings) -> Findings:
    yield from or_ok("limits", "rate limits are on", _limits(settings))


def _limits(settings: Settings) -> Findings:
    off = [name for name, tenant in settings.tenants.items() if not tenant.limits.enabled]
    if not settings.limits.enabled:
        why = "One client can use up the capacity of a node, and the rate of new sessions is not limited."
        yield warning("limits.enabled", "false: rate limits are off", why, "Set it to true; false is for load tests.")
    elif off:
        why = "One of their clients can use up the capacity of a node."
        yield warning(
            "limits.enabled",
            f"false for tenants {', '.join(off)}",
            why,
            "Set it to true, and raise their limits instead.",
        )
    if not settings.limits.user_connections:
        why = "One user can use up all connections."
        yield note("limits.user_connections", "0: no limit", why, "Set a limit, such as 100.")
    if settings.server.log == "debug":
        why = "This level logs details of every connection, and takes processor time."
        yield note("server.log", "debug", why, "Set it to info.")
    if settings.server.tenant_metrics:
        why = "Readers of /metrics see the names of the tenants."
        yield note("server.tenant_metrics", "on", why, "Block /metrics at the proxy.")
    if settings.server.workers > 1 and not settings.metrics.port:
        why = "Each scrape of /metrics reaches a different worker, so rates are wrong."
        do = "Set metrics.port: workers then use this port and the following ones."
        yield note("metrics.port", f"not set, with {settings.server.workers} workers", why, do)


def calls(settings: Settings) -> Findings:
    """Yield the findings about calls to apps: webhooks and the visibility webhook."""
    asked = {"visibility.ask_url": settings.visibility.ask_url}
    asked |= {f"tenants.{name}.visibility.ask_url": t.visibility.ask_url for name, t in settings.tenants.items()}
    if not settings.hooks and not any(asked.values()) and not settings.webhooks.allow_private:
        return
    yield from or_ok("webhooks", "apps are called with TLS, and no risky address is allowed", _calls(settings, asked))


def _calls(settings: Settings, asked: dict[str, str]) -> Findings:
    allowed = settings.webhooks.allow_private
    if "all" in allowed:
        why = "The URL of a tenant can point to this machine, its network or the cloud's metadata service."
        yield warning("webhooks.allow_private", "`all`", why, "List the app's own network only, such as 10.1.2.0/24.")
    elif worst := [text for text in allowed if any(_meet(text, bad) for bad in _WORST)]:
        why = "The URL of a tenant can point to this machine, or to the cloud's metadata service."
        found = f"calls to {', '.join(worst)} are allowed"
        yield warning("webhooks.allow_private", found, why, "List the app's own network only, such as 10.1.2.0/24.")
    elif allowed:
        why = "The URLs of all tenants can point there."
        yield note(
            "webhooks.allow_private",
            f"calls to {', '.join(allowed)} are allowed",
            why,
            "Allow as few addresses as possible.",
        )
    for tenant, hook in settings.hooks.items():
        if hook.url.startswith("http:"):
            why = "User data can be read on the network. The signature prevents changes only."
            yield warning("webhooks.url", f"the webhook of tenant {tenant} is called without TLS", why, "Use https://.")
    for name, url in asked.items():
        host = urlsplit(url).hostname or ""
        if url.startswith("http:") and not is_local(host):
            why = "Visibility decisions can be read and changed on the network."
            yield warning(name, "the app is called without TLS", why, "Use https://.")


def _meet(text: str, bad: IPv4Network | IPv6Network) -> bool:
    network = ip_network(text)
    return type(network) is type(bad) and network.overlaps(bad)
