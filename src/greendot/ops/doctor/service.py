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
        why = "One client can keep a node busy for all others, and hellos are not taken at a pace."
        yield warning("limits.enabled", "false: rate limits are off", why, "Set it to true; false is for load tests.")
    elif off:
        why = "Their clients can keep a node busy for all others."
        yield warning("limits.enabled", f"off for tenants {', '.join(off)}", why, "Raise their limits instead.")
    if not settings.limits.user_connections:
        why = "One user can take all sockets."
        yield note("limits.user_connections", "0: no limit", why, "Set it to what is normal, such as 100.")
    if settings.server.log == "debug":
        why = "It says much about every connection, and costs time."
        yield note("server.log", "debug", why, "Set it to info.")
    if settings.server.tenant_metrics:
        why = "Whoever may read /metrics learns which tenants there are."
        yield note("server.tenant_metrics", "on", why, "Do not pass /metrics on at the proxy.")
    if settings.server.workers > 1 and not settings.metrics.port:
        why = "A scrape of /metrics is answered by any of the workers, and rates of such numbers mean nothing."
        do = "Set metrics.port: each worker has a port of its own from there on."
        yield note("metrics.port", f"none, with {settings.server.workers} workers", why, do)


def calls(settings: Settings) -> Findings:
    """Yield the findings about calls to apps: webhooks and the visibility webhook."""
    asked = {"visibility.ask_url": settings.visibility.ask_url}
    asked |= {f"tenants.{name}.visibility.ask_url": t.visibility.ask_url for name, t in settings.tenants.items()}
    if not settings.hooks and not any(asked.values()) and not settings.webhooks.allow_private:
        return
    yield from or_ok("webhooks", "apps are called by TLS, and nothing inside is", _calls(settings, asked))


def _calls(settings: Settings, asked: dict[str, str]) -> Findings:
    allowed = settings.webhooks.allow_private
    if "all" in allowed:
        why = "A tenant's URL may lead to this machine, its neighbours or the cloud's metadata."
        yield warning("webhooks.allow_private", "`all`", why, "List the app's own network only, such as 10.1.2.0/24.")
    elif worst := [text for text in allowed if any(_meet(text, bad) for bad in _WORST)]:
        why = "A tenant's URL may lead to this machine itself, or to the cloud's metadata."
        found = f"{', '.join(worst)} may be called"
        yield warning("webhooks.allow_private", found, why, "List the app's own network only, such as 10.1.2.0/24.")
    elif allowed:
        why = "URLs of all tenants may lead there."
        yield note("webhooks.allow_private", f"{', '.join(allowed)} may be called", why, "Keep it as narrow as can be.")
    for tenant, hook in settings.hooks.items():
        if hook.url.startswith("http:"):
            why = "What users write can be read on its way to the app. Only who sent it is certain."
            yield warning("webhooks.url", f"that of tenant {tenant} is called without TLS", why, "Use https://.")
    for name, url in asked.items():
        host = urlsplit(url).hostname or ""
        if url.startswith("http:") and not is_local(host):
            why = "Who sees whom can be read, and changed, on its way."
            yield warning(name, "the app is asked without TLS", why, "Use https://.")


def _meet(text: str, bad: IPv4Network | IPv6Network) -> bool:
    network = ip_network(text)
    return type(network) is type(bad) and network.overlaps(bad)
