"""Settings of visibility (who sees whom), and their checks."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import LEAST_SECRET, Mistakes, Secret, about
from greendot.config.webhooks import Webhooks, check_url


class Visibility(Struct, frozen=True, forbid_unknown_fields=True):
    """Visibility policy of all tenants, or of one."""

    policy: Annotated[
        Literal["tenant", "shared_rooms", "contacts", "recent_contacts", "ask"],
        about("rule that decides which users see each other"),
    ] = "tenant"
    recent_days: Annotated[float, Meta(gt=0, le=36_500), about("how long a contact counts as recent")] = 30.0
    ask_url: Annotated[str, about("URL of the app's visibility webhook, for policy `ask`")] = ""
    ask_secret: Annotated[Secret, about("secret that signs requests to ask_url; at least 32 characters")] = ""
    ask_timeout_s: Annotated[float, Meta(gt=0, le=30), about("time limit of a request to ask_url")] = 2.0
    ask_cache_s: Annotated[float, Meta(ge=1, le=3_600), about("how long an answer of the app is cached")] = 60.0


def check_visibility(section: str, visibility: Visibility, common: Webhooks) -> Mistakes:
    """Yield the mistakes in the settings of the visibility webhook."""
    policy, url, secret = (f"{section}.{name}" for name in ("policy", "ask_url", "ask_secret"))
    if visibility.ask_url:
        yield from check_url(url, visibility.ask_url, common.allow_private)
    if visibility.policy == "ask" and not visibility.ask_url:
        yield f"{policy} is `ask` but {url} is not set. Set it to the URL of the app's visibility webhook."
    if visibility.ask_url and len(visibility.ask_secret) < LEAST_SECRET:
        yield (
            f"{secret} must have at least {LEAST_SECRET} characters, or requests could be forged. "
            "Generate one with: openssl rand -hex 32"
        )
