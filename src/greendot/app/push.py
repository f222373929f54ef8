"""Push services from the settings: providers with their accounts, policies of tenants, and the worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

from msgspec import structs

from greendot.clock import Clock, SystemClock
from greendot.config import Settings
from greendot.config.push import TenantPush
from greendot.errors import ConfigError
from greendot.push.payload import ProviderSender, PushPayload, Sender, SendResult
from greendot.push.policy_model import PushPolicy, Reason
from greendot.push.provider_channel import ChannelLimits, ProviderChannel, SharedChannels
from greendot.push.providers.apns import Account, Apns
from greendot.push.providers.fcm import Fcm
from greendot.push.providers.google_auth import read_account
from greendot.push.providers.signing import ec_key
from greendot.push.providers.webhook import PushWebhook
from greendot.push.providers.webpush import Vapid, WebPush
from greendot.push.recipient_state import Presence, RecipientStates
from greendot.push.worker import PushWorker, RecipientReader, TenantPushConfig, WorkerPace
from greendot.store.port import Store
from greendot.store.push import Device, Provider
from greendot.transport.address_model import networks
from greendot.transport.http_client import Terms

FINISH_S = 5.0  # for sends under way at the end
OUTCOMES = ("sent", "failed", "gone", "refused", "held")
ALL = "all"  # name in logs for what tenants share

T = TypeVar("T")


class PushService:
    """Push worker and senders of one process."""

    def __init__(self, settings: Settings, store: Store, look: RecipientReader, clock: Clock) -> None:
        self._senders: list[Sender] = []
        self._terms = push_terms(settings)  # one for all tenants: its bounds hold for all of them together
        self._own = {
            name: self._tenant_config(settings, name, own.push, clock) for name, own in settings.tenants.items()
        }
        self._common = self._tenant_config(settings, ALL, settings.push, clock)
        push = settings.push
        pace = WorkerPace(push.concurrency, give_up_ms=round(push.give_up_after_s * 1000))
        self.worker = PushWorker(store, lambda tenant: self._own.get(tenant, self._common), look, clock, pace)

    def _tenant_config(
        self, settings: Settings, tenant: str, push: TenantPush, clock: Clock
    ) -> TenantPushConfig | None:
        if not push.pushes:
            return None
        senders = make_senders(settings, tenant, push, clock, self._terms)
        self._senders += senders.values()
        hints = {name for name, kind in settings.kinds.items() if kind.bus == "hint"}
        return TenantPushConfig(senders, policies(push), lambda kind: kind in hints)

    async def close(self) -> None:
        await self.worker.close(FINISH_S)
        for sender in self._senders:
            await sender.close()

    def items(self) -> dict[str, int]:
        """Return the counters for `/metrics`."""
        counts = self.worker.counters
        by_reason = dict.fromkeys(get_args(Reason), 0)
        for (_, reason), count in counts.decided.items():
            by_reason[reason] = by_reason.get(reason, 0) + count
        names = self._terms.strangers
        return {
            "push_lookups": names.under_way,
            "push_lookups_failed_total": names.counts.failed,
            "push_lookups_refused_total": names.counts.refused,
            "push_queue_waiting": counts.queue.waiting,
            "push_queue_due": counts.queue.due,
            "push_queue_oldest_s": counts.oldest_s,
            "push_dead_letters": counts.queue.dead,
            "push_given_up_total": counts.dead,
            **{f"push_decided_{reason}_total": count for reason, count in by_reason.items()},
            **{
                f"push_{provider}_{outcome}_total": counts.results.get((provider, outcome), 0)
                for provider in get_args(Provider)
                for outcome in OUTCOMES
            },
        }


def make_pushing(settings: Settings, engine: Presence, store: Store, clock: Clock) -> PushService:
    """Return a push service that reads from the engine who is online."""
    return PushService(settings, store, RecipientStates(engine, store).read, clock)


def policies(push: TenantPush) -> Callable[[str], PushPolicy]:
    """Return the push policy by kind of notification."""
    common = PushPolicy(push.enabled, push.active_hold_s, push.idle_hold_s, push.per_hour, push.least)
    own = {
        name: structs.replace(
            common,
            enabled=kind.enabled,
            active_hold_s=common.active_hold_s if kind.active_hold_s is None else kind.active_hold_s,
            idle_hold_s=common.idle_hold_s if kind.idle_hold_s is None else kind.idle_hold_s,
            least=kind.least or common.least,
        )
        for name, kind in push.kinds.items()
    }
    return lambda kind: own.get(kind, common)


def make_senders(
    settings: Settings, tenant: str, push: TenantPush, clock: Clock, terms: Terms | None = None
) -> dict[Provider, Sender]:
    """Return the senders that are configured. Raise ConfigError with the setting if a file cannot be used."""
    terms, bounds = terms or push_terms(settings), ChannelLimits(at_once=settings.push.at_once)
    made: dict[Provider, ProviderSender] = {}
    if push.dry_run:
        made = dict.fromkeys(get_args(Provider), DryRunProvider())
    else:
        section = "push" if tenant == ALL else f"tenants.{tenant}.push"
        if push.fcm_credentials_file:
            made["fcm"] = _fcm(section, push, terms, clock)
        if push.apns_key_file:
            made["apns"] = _apns(section, push, terms, clock)
        if push.webpush_key_file:
            key = _read(f"{section}.webpush_key_file", push.webpush_key_file)
            vapid = _usable(f"{section}.webpush_key_file", lambda: Vapid(key, push.webpush_subject, clock))
            made["webpush"] = WebPush(vapid, terms, clock)
        if push.webhook_url:
            secrets = (push.webhook_secret, push.webhook_secret_before)
            made["webhook"] = PushWebhook(push.webhook_url, secrets, terms, clock)

    def channel(provider: Provider, sender: ProviderSender, of: str) -> ProviderChannel:
        return ProviderChannel(sender, of, provider, clock, bounds, dry_run=push.dry_run)

    return {
        provider: SharedChannels(partial(channel, provider, sender), sender)
        if tenant == ALL
        else channel(provider, sender, tenant)
        for provider, sender in made.items()
    }


class DryRunProvider:
    """Provider for dry runs, which send nothing."""

    def place(self, device: Device) -> str:
        return ""

    def is_known(self, place: str) -> bool:
        return True

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        raise AssertionError("a dry run sends nothing")

    async def close(self) -> None:
        pass


def public_keys(settings: Settings) -> Callable[[str], str | None]:
    """Return the keys with which browsers subscribe, by tenant. Raise ConfigError if a file cannot be used."""

    def key(section: str, push: TenantPush) -> str | None:
        if not (push.pushes and push.webpush_key_file):
            return None
        setting = f"{section}.webpush_key_file"
        text = _read(setting, push.webpush_key_file)
        return _usable(setting, lambda: ec_key(text).public_point())

    own = {name: key(f"tenants.{name}.push", tenant.push) for name, tenant in settings.tenants.items()}
    common = key("push", settings.push)
    return lambda tenant: own.get(tenant, common)


def push_terms(settings: Settings) -> Terms:
    """Return the terms on which providers are called."""
    push = settings.push
    try:
        return Terms(
            allowed=networks(push.allow_private),
            timeout_s=push.timeout_s,
            ca_file=push.ca_file,
            listed_in="push.allow_private",
        )
    except OSError as error:
        raise ConfigError(f"push.ca_file: cannot read {push.ca_file}: {error.strerror or error}") from None


def check_accounts(settings: Settings) -> None:
    """Raise ConfigError if a configured account cannot be used."""
    clock = SystemClock()
    if settings.push.pushes:  # first: tenants may share a file that cannot be used
        make_senders(settings, ALL, settings.push, clock)
    for name, own in settings.tenants.items():
        if own.push.pushes:
            make_senders(settings, name, own.push, clock)


def _fcm(section: str, push: TenantPush, terms: Terms, clock: Clock) -> Fcm:
    setting = f"{section}.fcm_credentials_file"
    text = _read(setting, push.fcm_credentials_file)
    account = _usable(setting, lambda: read_account(text))
    if push.fcm_project:
        account = structs.replace(account, project_id=push.fcm_project)
    return _usable(setting, lambda: Fcm(account, terms, clock, url=push.fcm_url))


def _apns(section: str, push: TenantPush, terms: Terms, clock: Clock) -> Apns:
    setting = f"{section}.apns_key_file"
    key = _read(setting, push.apns_key_file)
    names = (push.apns_key_id, push.apns_team_id, push.apns_topic)
    account = Account(key, *names, "sandbox" if push.apns_sandbox else "production")
    return _usable(setting, lambda: Apns(account, terms, clock, url=push.apns_url or None))


def _read(setting: str, path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise ConfigError(f"{setting}: cannot read {path}: {why}") from None


def _usable(setting: str, make: Callable[[], T]) -> T:
    """Call `make`; raise ConfigError with the setting if the key in it is not valid."""
    try:
        return make()
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from None
