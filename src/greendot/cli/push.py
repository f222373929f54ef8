"""Command `greendot push`: results of pushes, devices of users, dead letters, and test pushes."""

from __future__ import annotations

import click
from msgspec import structs

from greendot.app.config_checks import CHECKS
from greendot.app.push import ALL, make_senders
from greendot.cli import _undelivered
from greendot.cli._group import Group
from greendot.cli._options import check_ids, json_option, print_json
from greendot.cli._settings import settings_from
from greendot.cli._store import StoreAccess, on_a_loop, store_options
from greendot.cli._tables import NOTHING, ago, print_table, table
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.config.push import TenantPush
from greendot.errors import ConfigError
from greendot.ids import new_message_id
from greendot.push.payload import PushPayload, SendResult
from greendot.store.push import Device, PushRecord

SHOWN_OF_A_TOKEN = 6  # characters at its end
SHOWN = ("Greendot", "This is a test.")  # title and text of a test push
TENANTS = {"all": "All tenants", "all others": "All other tenants"}
WORDS = {
    "seen": "The notification was seen, read, archived or acknowledged before the push.",
    "expired": "The notification expired or was removed.",
    "no_device": "The user has no device registered with a configured provider.",
    "kind_off": "Push is off for this kind of notification, or for the tenant.",
    "importance_low": "The importance of the notification is below the push threshold.",
    "in_the_room": "The user is in the room that the notification is about.",
    "awaiting_ack": "The user has seen the notification without acknowledging it; connected devices get it again.",
    "active": "The user is active. The push is held, and sent if the notification stays unseen.",
    "idle": "The user is online but idle. The push is held, and sent if the notification stays unseen.",
    "busy": "The user is busy.",
    "quiet_hours": "The user has quiet hours.",
    "over_the_cap": "The user has reached the limit of pushes per hour.",
    "unseen": "The user was online, but the notification stayed unseen.",
    "unacknowledged": "The user was online and got the notification repeatedly, but did not acknowledge it.",
    "offline": "The user was offline.",
    "presence_unknown": "The presence of the user was unknown.",
    "critical": "The notification is critical: presence, busy status, quiet hours and the limit do not hold it.",
    "": "The push worker has not processed the push yet.",
}

tenant_option = click.option("--tenant", default="default", show_default=True, help="Tenant of the user.")


@click.group(cls=Group)
def push() -> None:
    """Inspect, replay and test pushes to devices."""


@push.command()
@click.argument("notification")
@tenant_option
@json_option
@store_options
def explain(notification: str, tenant: str, as_json: bool, access: StoreAccess) -> None:
    """Show why NOTIFICATION (an id) was pushed or not, and the response of each provider."""
    check_ids("notification", (notification,), tenant)
    found = access.run(lambda store: store.push_of(tenant, notification))
    if as_json:
        print_json({"pushes": found})
        return
    if not found:
        click.echo(
            "No push found for this notification. It was not to be pushed (`push: false`, its kind, or a tenant "
            "without a provider), it does not exist, or its push record was removed."
        )
        return
    now = SystemClock().now_ms()
    for record in found:
        click.echo("\n".join(_explained(record, now)))


def _explained(record: PushRecord, now: int) -> list[str]:
    state = "given up" if record.is_dead else "done" if record.over_at is not None else "waiting"
    lines = [
        f"Notification {record.notification}, number {record.seq} of {record.user}, {record.importance}, "
        f"created {ago(record.created_at, now)}.",
        f"{state.capitalize()}: {record.reason or 'new'}. {WORDS.get(record.reason, '')}".rstrip(),
    ]
    if record.due_at is not None:
        left_s = max(0, record.due_at - now) / 1000
        lines.append(f"Next check in {left_s:.0f} s." if left_s else "The push is due.")
    if record.results:
        rows = [
            (one.device, one.provider, one.outcome, str(one.attempts), ago(one.at, now), one.reason or NOTHING)
            for one in record.results
        ]
        lines.append(table(("DEVICE", "PROVIDER", "OUTCOME", "ATTEMPTS", "LAST", "REASON"), rows))
    return lines


@push.command()
@click.argument("user")
@tenant_option
@json_option
@store_options
def devices(user: str, tenant: str, as_json: bool, access: StoreAccess) -> None:
    """List the devices of USER that are registered for push. Tokens are shortened."""
    check_ids("user", (user,), tenant)
    found = access.run(lambda store: store.devices(tenant, user))
    shown = [device._replace(token=f"…{device.token[-SHOWN_OF_A_TOKEN:]}") for device in found]
    if as_json:
        print_json({"devices": [device._asdict() for device in shown]})
        return
    now = SystemClock().now_ms()
    rows = [(d.device, d.provider, d.token, ago(d.created_at, now), ago(d.used_at, now)) for d in shown]
    print_table(("DEVICE", "PROVIDER", "TOKEN", "REGISTERED", "LAST USED"), rows, f"{user} has no registered device.")


@push.command()
@json_option
@store_options
def status(as_json: bool, access: StoreAccess) -> None:
    """Show the size of the push queue, and the providers of each tenant."""
    settings, now = access.settings, SystemClock().now_ms()
    counts = access.run(lambda store: store.push_counts(now))
    providers: dict[str, TenantPush] = {"all others" if settings.tenants else "all": settings.push}
    providers |= {name: tenant.push for name, tenant in settings.tenants.items()}
    if as_json:
        print_json({**counts._asdict(), "providers": {name: own.providers for name, own in providers.items()}})
        return
    oldest = "" if counts.oldest_due_at is None else f" (the oldest since {ago(counts.oldest_due_at, now)})"
    click.echo(f"Waiting: {counts.waiting}, {counts.due} of them due{oldest}. Given up: {counts.dead}.")
    for name, own in providers.items():
        by = ", ".join(own.providers) if own.pushes else "no push, because no provider is configured or push is off"
        click.echo(f"{TENANTS.get(name, f'Tenant {name}')}: {by}{' (dry run)' if own.dry_run else ''}.")


@push.command()
@json_option
@_undelivered.tenant_option
@store_options
def dead(as_json: bool, tenant: str | None, access: StoreAccess) -> None:
    """List pushes that were given up, the oldest first."""
    found = access.run(lambda store: store.dead_pushes(tenant, _undelivered.MOST_LISTED + 1))
    if as_json:
        print_json({"dead": found})
        return
    now = SystemClock().now_ms()
    rows = [
        (str(one.id), one.tenant, one.user, one.notification, str(one.attempts), ago(one.over_at, now), _why(one))
        for one in found
    ]
    _undelivered.print_list(
        ("ID", "TENANT", "USER", "NOTIFICATION", "ATTEMPTS", "GIVEN UP", "REASON"), rows, "greendot push"
    )


def _why(record: PushRecord) -> str:
    reasons = [one.reason for one in record.results if one.outcome in ("failed", "refused")]
    return reasons[0] if reasons else record.reason


@push.command()
@_undelivered.which_options
@_undelivered.tenant_option
@store_options
def replay(ids: tuple[int, ...], everything: bool, tenant: str | None, access: StoreAccess) -> None:
    """Send dead letters again, to the devices that did not get them."""
    wanted = _undelivered.wanted(ids, everything, "greendot push dead")
    now = SystemClock().now_ms()
    found = access.run(lambda store: store.replay_pushes(tenant, wanted, now))
    _undelivered.print_replayed(found, ids, f"Queued again: {len(found)}.")


@push.command()
@click.option("--user", required=True, help="User whose devices get the push.")
@click.option("--device", help="Only this device.")
@click.option("--dry-run", is_flag=True, help="Do everything except sending.")
@tenant_option
@store_options
def test(user: str, device: str | None, dry_run: bool, tenant: str, access: StoreAccess) -> None:
    """Send a test push to the devices of a user, without queue and policy. Print the responses."""
    check_ids("user", (user,), tenant)
    settings_from(access.config, {}, CHECKS)
    found = access.run(lambda store: store.devices(tenant, user))
    to = [one for one in found if device in (None, one.device)]
    if not to:
        raise ConfigError(
            f"{user} has no registered device{f' {device}' if device else ''}. List devices with: greendot push "
            f"devices {user}"
        )
    sent = on_a_loop(_send(access.settings, tenant, to, dry_run=dry_run))
    rows = [(one.device, one.provider, got.outcome, got.reason or NOTHING) for one, got in zip(to, sent, strict=True)]
    click.echo(table(("DEVICE", "PROVIDER", "OUTCOME", "REASON"), rows))
    if any(got.outcome != "sent" for got in sent):
        raise ConfigError("the push was not sent to all devices. See the reasons above.")


async def _send(settings: Settings, tenant: str, to: list[Device], *, dry_run: bool) -> list[SendResult]:
    own, clock = settings.push_of(tenant), SystemClock()
    name = tenant if tenant in settings.tenants else ALL
    senders = make_senders(settings, name, structs.replace(own, dry_run=own.dry_run or dry_run), clock)
    made, sent = new_message_id(), []
    try:
        for device in to:
            payload = PushPayload(f"{made}.{device.device}", made, 0, "test", "high", clock.now_ms(), None, *SHOWN)
            sender = senders.get(device.provider)
            missing = SendResult("refused", f"{device.provider} is not configured for tenant {tenant}")
            sent.append(missing if sender is None else await sender.send(device, payload))
        return sent
    finally:
        for sender in senders.values():
            await sender.close()
