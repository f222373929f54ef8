"""Settings of the webhook before publishing, and their checks."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import Mistakes, Secret, about
from greendot.config.webhooks import Webhooks, check_asked


class BeforePublish(Struct, frozen=True, forbid_unknown_fields=True):
    """Webhook before publishing of all tenants, or of one."""

    url: Annotated[str, about("URL of the app's webhook before publishing; empty: messages are not checked")] = ""
    secret: Annotated[Secret, about("secret that signs requests; at least 32 characters")] = ""
    timeout_s: Annotated[float, Meta(gt=0, le=30), about("time limit of a request")] = 2.0
    on_failure: Annotated[
        Literal["refuse", "allow"],
        about("messages of users while the app does not answer: refuse them, or publish them unchecked"),
    ] = "refuse"
    concurrent: Annotated[int, Meta(ge=1, le=256), about("requests at the same time, for each node")] = 16


def check_before_publish(section: str, hook: BeforePublish, common: Webhooks) -> Mistakes:
    """Yield the mistakes in the settings of the webhook before publishing."""
    url, secret = (f"{section}.url", hook.url), (f"{section}.secret", hook.secret)
    yield from check_asked(url, secret, common.allow_private, "no message would be checked")
