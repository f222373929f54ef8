"""Webhooks, and clients of webhooks that apps answer, made from the settings of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greendot.clock import Clock
from greendot.config import Settings
from greendot.config.before_publish import BeforePublish
from greendot.config.webhooks import Hook as HookSettings
from greendot.errors import ConfigError
from greendot.store.port import Store
from greendot.transport.address_model import networks

if TYPE_CHECKING:
    from greendot.rooms.before_publish import PublishHook
    from greendot.transport.http_client import Terms
    from greendot.visibility.webhook_client import HttpVisibilityClient
    from greendot.webhooks.hook import Hook
    from greendot.webhooks.service import Webhooks


def make_webhooks(settings: Settings, store: Store, clock: Clock) -> Webhooks:
    from greendot.webhooks.records import DeliveryPace
    from greendot.webhooks.service import Webhooks

    common, terms = settings.webhooks, call_terms(settings)
    hooks = {tenant: make_hook(tenant, hook, terms, clock) for tenant, hook in settings.hooks.items()}
    pace = DeliveryPace(common.batch_max, common.batch_wait_ms / 1000, round(common.give_up_after_s * 1000))
    return Webhooks(hooks, store, clock, pace)


def make_hook(tenant: str, hook: HookSettings, terms: Terms, clock: Clock) -> Hook:
    from greendot.transport.http_client import Caller
    from greendot.webhooks.hook import Hook

    secrets = (hook.secret, hook.secret_before)
    return Hook(tenant, hook.url, secrets, hook.events, Caller(hook.url, terms), clock)


def make_visibility_clients(settings: Settings, clock: Clock) -> dict[str, HttpVisibilityClient]:
    """Return the clients of the visibility webhooks, by tenant; "" for tenants without settings of their own."""
    own = {tenant: section.visibility for tenant, section in settings.tenants.items()}
    sections = {tenant: of for tenant, of in (own | {"": settings.visibility}).items() if of.policy == "ask"}
    if not sections:
        return {}
    from greendot.visibility.webhook_client import HttpVisibilityClient

    return {
        tenant: HttpVisibilityClient(of.ask_url, of.ask_secret, call_terms(settings, of.ask_timeout_s), clock)
        for tenant, of in sections.items()
    }


def make_publish_hooks(settings: Settings, clock: Clock) -> dict[str, PublishHook | None]:
    """Return the webhooks before publishing, by tenant; "" for tenants without settings of their own."""
    own = {tenant: section.before_publish for tenant, section in settings.tenants.items()}
    sections = own | {"": settings.before_publish}
    if not any(of.url for of in sections.values()):
        return {}
    return {tenant: _publish_hook(settings, of, clock) if of.url else None for tenant, of in sections.items()}


def _publish_hook(settings: Settings, of: BeforePublish, clock: Clock) -> PublishHook:
    from greendot.rooms.before_publish import PublishHook
    from greendot.visibility.webhook_client import HttpVisibilityClient

    terms = call_terms(settings, of.timeout_s)
    client = HttpVisibilityClient(of.url, of.secret, terms, clock, most=of.concurrent)
    return PublishHook(client, of.on_failure == "refuse")


def call_terms(settings: Settings, timeout_s: float | None = None) -> Terms:
    """Return the terms on which apps are called. Raise ConfigError if the certificates cannot be read."""
    from greendot.transport.http_client import Terms

    common = settings.webhooks
    if timeout_s is None:
        timeout_s = common.timeout_s
    try:
        return Terms(allowed=networks(common.allow_private), timeout_s=timeout_s, ca_file=common.ca_file)
    except OSError as error:
        raise ConfigError(f"webhooks.ca_file: cannot read {common.ca_file}: {error.strerror or error}") from None
