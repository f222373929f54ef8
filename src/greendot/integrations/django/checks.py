"""System checks: `manage.py check` reports each mistake in the setting, and a database without an outbox."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from greendot.integrations.django.conf import NAME, mistakes
from greendot.integrations.django.outbox import NEEDS_POSTGRES, database_kind, outbox_database

LOCAL_CACHES = ("locmem", "dummy")


@register("greendot")
def check_setting(app_configs: object, **_: Any) -> list[CheckMessage]:
    return [Error(one.text, hint=one.hint, id=one.id) for one in mistakes(getattr(settings, NAME, None))]


@register("greendot")
def check_database(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Warn if the database of the outbox is not PostgreSQL. A project without a database uses no outbox."""
    alias = outbox_database()
    kind = database_kind(alias)
    if kind in ("postgresql", "unknown"):
        return []
    hint = (
        f"{NEEDS_POSTGRES} Token view, webhook view and server() work with every database. If you do not use the "
        'outbox: SILENCED_SYSTEM_CHECKS = ["greendot.W001"].'
    )
    return [Warning(f"There is no outbox in the database {alias!r}, which is {kind}.", hint=hint, id="greendot.W001")]


@register(Tags.security, deploy=True)
def check_cache(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Warn at `check --deploy` if replayed webhooks are recognised by single processes only."""
    given: Any = getattr(settings, NAME, None)
    if mistakes(given) or not given.get("WEBHOOK_SECRETS"):
        return []
    alias = given.get("CACHE", "default")
    if not settings.CACHES[alias]["BACKEND"].startswith(
        tuple(f"django.core.cache.backends.{name}." for name in LOCAL_CACHES)
    ):
        return []
    text = (
        f"Each process has its own cache {alias!r}, and recognises only the repeated webhooks that it received itself."
    )
    return [Warning(text, hint=f'Name a shared cache in {NAME}["CACHE"].', id="greendot.W002")]
