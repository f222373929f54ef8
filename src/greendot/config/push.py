"""Settings of push, and their checks."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import LEAST_SECRET, Mistakes, Secret, about, check_name
from greendot.config.webhooks import check_url

Importance = Literal["low", "normal", "high", "critical"]
Hold = Annotated[float, Meta(ge=0, le=86_400)]


class PushKind(Struct, frozen=True, forbid_unknown_fields=True):
    """Differences for one kind of notification. None: as for all kinds."""

    enabled: Annotated[bool, about("false: this kind is never pushed")] = True
    active_hold_s: Hold | None = None
    idle_hold_s: Hold | None = None
    least: Importance | None = None


class TenantPush(Struct, frozen=True, forbid_unknown_fields=True):
    """Push settings of one tenant: providers, and when a notification is pushed."""

    enabled: Annotated[bool, about("push if a provider is configured")] = True
    fcm_credentials_file: Annotated[str, about("JSON file of a Google service account; empty: no FCM")] = ""
    fcm_project: Annotated[str, about("Firebase project; empty: that of the service account")] = ""
    fcm_url: Annotated[str, about("base URL of FCM")] = "https://fcm.googleapis.com"
    apns_key_file: Annotated[str, about("Apple's .p8 key file; empty: no APNs")] = ""
    apns_key_id: Annotated[str, about("id of the APNs key")] = ""
    apns_team_id: Annotated[str, about("id of the Apple developer team")] = ""
    apns_topic: Annotated[str, about("bundle id of the app")] = ""
    apns_sandbox: Annotated[bool, about("send to Apple's sandbox, for development builds of the app")] = False
    apns_url: Annotated[str, about("base URL of APNs; empty: Apple's")] = ""
    webpush_key_file: Annotated[str, about("file with the private VAPID key; empty: no Web Push")] = ""
    webpush_subject: Annotated[str, about("contact for push services: mailto: or https://")] = ""
    webhook_url: Annotated[str, about("URL of an app that sends pushes itself; empty: none")] = ""
    webhook_secret: Annotated[Secret, about("secret that signs requests to webhook_url; at least 32 characters")] = ""
    webhook_secret_before: Annotated[Secret, about("previous secret during a rotation; signs requests too")] = ""
    dry_run: Annotated[bool, about("decide and record pushes, but send none")] = False
    active_hold_s: Annotated[
        Hold, about("delay of a push to an active user; no push if the notification is seen meanwhile")
    ] = 60.0
    idle_hold_s: Annotated[Hold, about("delay of a push to a connected but idle user")] = 30.0
    least: Annotated[
        Importance, about("lowest importance that is pushed; other notifications stay in the inbox only")
    ] = "normal"
    per_hour: Annotated[int, Meta(ge=0, le=1_000_000), about("pushes to one user per hour; 0: no limit")] = 0
    kinds: Annotated[dict[str, PushKind], about("settings of kinds of notifications, by name; in the file only")] = {}

    @property
    def providers(self) -> tuple[str, ...]:
        """Return the providers that are set up; with `dry_run` all of them."""
        given = {
            "fcm": self.fcm_credentials_file,
            "apns": self.apns_key_file,
            "webpush": self.webpush_key_file,
            "webhook": self.webhook_url,
        }
        return tuple(name for name, value in given.items() if value or self.dry_run)

    @property
    def pushes(self) -> bool:
        """Return whether the tenant has push enabled and a provider."""
        return self.enabled and bool(self.providers)


class Push(TenantPush, frozen=True, forbid_unknown_fields=True):
    """Push settings of tenants without their own, and settings that apply to all tenants."""

    in_server: Annotated[bool, about("whether servers push; if not, only `greendot worker` does")] = True
    concurrency: Annotated[int, Meta(ge=1, le=10_000), about("pushes in progress in one process")] = 500
    at_once: Annotated[
        int, Meta(ge=1, le=1_000), about("concurrent sends to one provider, for one tenant, by one process")
    ] = 50
    timeout_s: Annotated[float, Meta(gt=0, le=30), about("time limit of one send")] = 10.0
    give_up_after_s: Annotated[
        float, Meta(gt=0, le=7 * 86_400), about("a push that fails for this time becomes a dead letter")
    ] = 86_400.0
    keep_s: Annotated[float, Meta(ge=3_600, le=30 * 86_400), about("how long the outcome of a push is kept")] = (
        30 * 86_400.0
    )
    allow_private: Annotated[
        tuple[str, ...], about("networks outside the public internet that pushes may be sent to; `all`: any")
    ] = ()
    ca_file: Annotated[str, about("CA certificates to trust instead of the system's")] = ""


def check_push(section: str, push: TenantPush, allow_private: tuple[str, ...]) -> Mistakes:
    """Yield the mistakes in one tenant's push settings. Later checks read the files."""
    missing = [f"{section}.{name}" for name in ("apns_key_id", "apns_team_id", "apns_topic") if not getattr(push, name)]
    if push.apns_key_file and missing:
        yield (
            f"{section}.apns_key_file is set but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not. "
            "APNs requires the ids of the key, the team and the app: set all of them."
        )
    subject, secret = f"{section}.webpush_subject", f"{section}.webhook_secret"
    if push.webpush_key_file and not push.webpush_subject.startswith(("mailto:", "https://")):
        yield (
            f"{subject} must begin with mailto: or https://. "
            "Set a contact for push services, such as mailto:ops@example.com."
        )
    for name in ("webhook_url", "fcm_url", "apns_url"):
        if url := getattr(push, name):
            yield from check_url(f"{section}.{name}", url, allow_private, "push.allow_private")
    for name, value in ((secret, push.webhook_secret), (f"{secret}_before", push.webhook_secret_before)):
        if (value or (name == secret and push.webhook_url)) and len(value) < LEAST_SECRET:
            yield (
                f"{name} must have at least {LEAST_SECRET} characters, or requests could be forged. "
                "Generate one with: openssl rand -hex 32"
            )
    for kind in push.kinds:
        yield from check_name(f"{section}.kinds: the name", kind)
