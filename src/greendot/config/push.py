"""Push: what can be set, and what is wrong with it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.mistakes import LEAST_SECRET, Mistakes, Secret, check_name
from greendot.config.webhooks import check_url

Importance = Literal["low", "normal", "high", "critical"]
Hold = Annotated[float, Meta(ge=0, le=86_400)]


class PushKind(Struct, frozen=True, forbid_unknown_fields=True):
    """What is different for one kind of notification; what is not said is as for all."""

    enabled: bool = True  # false: never pushed
    active_hold_s: Hold | None = None
    idle_hold_s: Hold | None = None
    least: Importance | None = None


class TenantPush(Struct, frozen=True, forbid_unknown_fields=True):
    """How one tenant pushes: by whom, and when."""

    enabled: bool = True  # where there is a provider
    fcm_credentials_file: str = ""  # of a service account, as Google gives it out; empty: no FCM
    fcm_project: str = ""  # empty: the account's own
    fcm_url: str = "https://fcm.googleapis.com"  # where FCM is
    apns_key_file: str = ""  # Apple's .p8; empty: no APNs
    apns_key_id: str = ""  # as Apple calls the key
    apns_team_id: str = ""  # as Apple calls the team
    apns_topic: str = ""  # the app's bundle id
    apns_sandbox: bool = False  # for apps that are not from the store yet
    apns_url: str = ""  # empty: Apple's
    webpush_key_file: str = ""  # the private VAPID key; empty: no Web Push
    webpush_subject: str = ""  # mailto: or https://, whom push services can tell of trouble
    webhook_url: str = ""  # of an app that sends by itself; empty: none
    webhook_secret: Secret = ""  # signs what it is sent; at least 32 characters
    webhook_secret_before: Secret = ""  # while the secret is being changed, the one before signs as well
    dry_run: bool = False  # everything is done but the sending
    active_hold_s: Hold = 60.0  # who is active here is pushed to only if it stays unseen for so long
    idle_hold_s: Hold = 30.0  # who is here and idle
    least: Importance = "normal"  # what is less important is in the inbox only
    per_hour: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # pushes to one user; 0: no cap
    kinds: dict[str, PushKind] = {}  # of notifications, by name; in the file only

    @property
    def providers(self) -> tuple[str, ...]:
        """Those that are set up."""
        given = {
            "fcm": self.fcm_credentials_file,
            "apns": self.apns_key_file,
            "webpush": self.webpush_key_file,
            "webhook": self.webhook_url,
        }
        return tuple(name for name, value in given.items() if value or self.dry_run)

    @property
    def pushes(self) -> bool:
        """Whether anything is ever sent."""
        return self.enabled and bool(self.providers)


class Push(TenantPush, frozen=True, forbid_unknown_fields=True):
    """That of all tenants without their own, and what holds for all of them."""

    in_server: bool = True  # servers push; else only `greendot worker` does
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 500  # pushes one process has in its hands
    at_once: Annotated[int, Meta(ge=1, le=1_000)] = 50  # sends to one provider, for one tenant, by one process
    timeout_s: Annotated[float, Meta(gt=0, le=30)] = 10.0  # for one send
    give_up_after_s: Annotated[float, Meta(gt=0, le=7 * 86_400)] = 86_400.0  # then a push is a dead letter
    keep_s: Annotated[float, Meta(ge=3_600, le=30 * 86_400)] = 30 * 86_400.0  # how long it is known what became of one
    allow_private: tuple[str, ...] = ()  # networks that are not of the public internet and may be sent to; `all`
    ca_file: str = ""  # certificates to trust in place of the machine's own


def check_push(section: str, push: TenantPush, allow_private: tuple[str, ...]) -> Mistakes:
    """All that is wrong with how one tenant pushes. Files are looked at when it starts."""
    yield from _check_apns(section, push)
    yield from _check_webpush(section, push)
    yield from _check_webhook(section, push, allow_private)
    for name, url in ((f"{section}.fcm_url", push.fcm_url), (f"{section}.apns_url", push.apns_url)):
        if url:
            yield from check_url(name, url, allow_private, "push.allow_private")
    for kind in push.kinds:
        yield from check_name(f"{section}.kinds: the name", kind)


def _check_apns(section: str, push: TenantPush) -> Mistakes:
    needed = ("apns_key_id", "apns_team_id", "apns_topic")
    missing = [f"{section}.{name}" for name in needed if not getattr(push, name)]
    if push.apns_key_file and missing:
        yield (
            f"{section}.apns_key_file is set, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not: "
            "Apple wants to know the key, the team and the app."
        )


def _check_webpush(section: str, push: TenantPush) -> Mistakes:
    subject = f"{section}.webpush_subject"
    if push.webpush_key_file and not push.webpush_subject.startswith(("mailto:", "https://")):
        yield f"{subject} must begin with mailto: or https://: push services want to know whom to tell of trouble."


def _check_webhook(section: str, push: TenantPush, allow_private: tuple[str, ...]) -> Mistakes:
    url, secret = f"{section}.webhook_url", f"{section}.webhook_secret"
    if push.webhook_url:
        yield from check_url(url, push.webhook_url, allow_private, "push.allow_private")
    for name, value in ((secret, push.webhook_secret), (f"{secret}_before", push.webhook_secret_before)):
        if (value or (name == secret and push.webhook_url)) and len(value) < LEAST_SECRET:
            yield (
                f"{name} must have at least {LEAST_SECRET} characters, or others could send in our name. "
                "Make one with: openssl rand -hex 32"
            )
