"""Command `greendot push`: results of pushes, devices of users, dead letters, and test pushes."""

from __future__ import annotations

import click
from msgspec import structs

from greendot.app.config_checks import CHECKS
from greendot.app.push import ALL, make_senders
from greendot.cli import _undelivered
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
WORDS = {
    "seen": "It was seen, read, archived or acknowledged first.",
    "expired": "It had expired, or was removed.",
    "no_device": "The user has no device registered with a provider that is set up.",
    "kind_off": "Its kind, or its tenant, is not pushed.",
    "importance_low": "It is less important than what is pushed.",
    "in_the_room": "The user is in the very room it is about.",
    "awaiting_ack": "The user has seen it and not acknowledged it: devices that are here get it again.",
    "active": "The user is active here: it is held, and pushed if it stays unseen.",
    "idle": "The user is here, and idle: it is held, and pushed if it stays unseen.",
    "busy": "The user is busy.",
    "quiet_hours": "The user has quiet hours.",
    "over_the_cap": "The user had as many as may be in an hour.",
    "unseen": "The user was here, and it stayed unseen.",
    "unacknowledged": "The user was here, got it again and again, and did not acknowledge it.",
    "offline": "The user was away.",
    "presence_unknown": "It was not known whether the user was here.",
    "critical": "It is critical: neither busy nor quiet hours hold it.",
    "": "Nobody has looked at it yet.",
}

tenant_option = click.option("--tenant", default="default", show_default=True, help="Whose users.")


@click.group()
def push() -> None:
    """What is pushed to devices of those who are away."""


@push.command()
@click.argument("notification")
@tenant_option
@json_option
@store_options
def explain(notification: str, tenant: str, as_json: bool, access: StoreAccess) -> None:
    """Why NOTIFICATION (its id) was pushed, is held, or never was; and what each device's provider said."""
    check_ids("notification", (notification,), tenant)
    found = access.run(lambda store: store.push_of(tenant, notification))
    if as_json:
        print_json({"pushes": found})
        return
    if not found:
        click.echo(
            "Nothing is known of it: it was not to be pushed (`push: false`, its kind, its tenant without a provider), "
            "or is not there, or it was long ago."
        )
        return
    now = SystemClock().now_ms()
    for record in found:
        click.echo("\n".join(_explained(record, now)))


def _explained(record: PushRecord, now: int) -> list[str]:
    state = "given up" if record.is_dead else "over" if record.over_at is not None else "waits"
    lines = [
        f"Notification {record.notification}, number {record.seq} of {record.user}, {record.importance}, "
        f"made {ago(record.created_at, now)}.",
        f"{state.capitalize()}: {record.reason or 'new'}. {WORDS.get(record.reason, '')}".rstrip(),
    ]
    if record.due_at is not None:
        left_s = max(0, record.due_at - now) / 1000
        lines.append(f"It is looked at again in {left_s:.0f} s." if left_s else "It is due.")
    if record.results:
        rows = [
            (one.device, one.provider, one.outcome, str(one.attempts), ago(one.at, now), one.reason or NOTHING)
            for one in record.results
        ]
        lines.append(table(("DEVICE", "PROVIDER", "OUTCOME", "TRIES", "LAST", "WHY"), rows))
    return lines


@push.command()
@click.argument("user")
@tenant_option
@json_option
@store_options
def devices(user: str, tenant: str, as_json: bool, access: StoreAccess) -> None:
    """Where USER can be reached. Of tokens only the end is shown."""
    check_ids("user", (user,), tenant)
    found = access.run(lambda store: store.devices(tenant, user))
    shown = [device._replace(token=f"…{device.token[-SHOWN_OF_A_TOKEN:]}") for device in found]
    if as_json:
        print_json({"devices": [device._asdict() for device in shown]})
        return
    now = SystemClock().now_ms()
    rows = [(d.device, d.provider, d.token, ago(d.created_at, now), ago(d.used_at, now)) for d in shown]
    print_table(("DEVICE", "PROVIDER", "TOKEN", "REGISTERED", "USED"), rows, f"{user} has no device registered.")


@push.command()
@json_option
@store_options
def status(as_json: bool, access: StoreAccess) -> None:
    """How full the queue is, and by whom is pushed."""
    settings, now = access.settings, SystemClock().now_ms()
    counts = access.run(lambda store: store.push_counts(now))
    providers: dict[str, TenantPush] = {"all others" if settings.tenants else "all": settings.push}
    providers |= {name: tenant.push for name, tenant in settings.tenants.items()}
    if as_json:
        print_json({**counts._asdict(), "providers": {name: own.providers for name, own in providers.items()}})
        return
    oldest = "" if counts.oldest_due_at is None else f", the first since {ago(counts.oldest_due_at, now)}"
    click.echo(f"Waiting: {counts.waiting}, of them {counts.due} due{oldest}. Given up: {counts.dead}.")
    for name, own in providers.items():
        by = ", ".join(own.providers) if own.pushes else "nobody: no provider is set up, or push is off"
        click.echo(f"Tenants {name}: by {by}{' (dry run)' if own.dry_run else ''}.")


@push.command()
@json_option
@_undelivered.tenant_option
@store_options
def dead(as_json: bool, tenant: str | None, access: StoreAccess) -> None:
    """Pushes that were given up, the oldest first."""
    found = access.run(lambda store: store.dead_pushes(tenant, _undelivered.MOST_LISTED + 1))
    if as_json:
        print_json({"dead": found})
        return
    now = SystemClock().now_ms()
    rows = [
        (str(one.id), one.tenant, one.user, one.notification, str(one.attempts), ago(one.over_at, now), _why(one))
        for one in found
    ]
    _undelivered.print_list(("ID", "TENANT", "USER", "NOTIFICATION", "TRIES", "GIVEN UP", "WHY"), rows, "greendot push")


def _why(record: PushRecord) -> str:
    reasons = [one.reason for one in record.results if one.outcome in ("failed", "refused")]
    return reasons[0] if reasons else record.reason


@push.command()
@_undelivered.which_options
@_undelivered.tenant_option
@store_options
def replay(ids: tuple[int, ...], everything: bool, tenant: str | None, access: StoreAccess) -> None:
    """Have dead letters sent again, to the devices that did not get them."""
    wanted = _undelivered.wanted(ids, everything, "greendot push dead")
    now = SystemClock().now_ms()
    found = access.run(lambda store: store.replay_pushes(tenant, wanted, now))
    _undelivered.print_replayed(found, ids, f"Queued again: {len(found)}.")


@push.command()
@click.option("--user", required=True, help="Whose devices.")
@click.option("--device", help="Only this one.")
@click.option("--dry-run", is_flag=True, help="Do everything but the sending.")
@tenant_option
@store_options
def test(user: str, device: str | None, dry_run: bool, tenant: str, access: StoreAccess) -> None:
    """Send a push to a user's devices by their providers, past the queue and the gate, and say what came back."""
    check_ids("user", (user,), tenant)
    settings_from(access.config, {}, CHECKS)
    found = access.run(lambda store: store.devices(tenant, user))
    to = [one for one in found if device in (None, one.device)]
    if not to:
        named = f" called {device}" if device else ""
        raise ConfigError(f"{user} has no device{named} registered: see `greendot push devices {user}`.")
    sent = on_a_loop(_send(access.settings, tenant, to, dry_run=dry_run))
    rows = [(one.device, one.provider, got.outcome, got.reason or NOTHING) for one, got in zip(to, sent, strict=True)]
    click.echo(table(("DEVICE", "PROVIDER", "OUTCOME", "WHY"), rows))
    if any(got.outcome != "sent" for got in sent):
        raise ConfigError("not all of them were sent to.")


async def _send(settings: Settings, tenant: str, to: list[Device], *, dry_run: bool) -> list[SendResult]:
    own, clock = settings.push_of(tenant), SystemClock()
    name = tenant if tenant in settings.tenants else ALL
    senders = make_senders(settings, name, structs.replace(own, dry_run=own.dry_run or dry_run), clock)
    made, sent = new_message_id(), []
    try:
        for device in to:
            payload = PushPayload(f"{made}.{device.device}", made, 0, "test", "high", clock.now_ms(), None, *SHOWN)
            sender = senders.get(device.provider)
            missing = SendResult("refused", f"{device.provider} is not set up for tenant {tenant}")
            sent.append(missing if sender is None else await sender.send(device, payload))
        return sent
    finally:
        for sender in senders.values():
            await sender.close()
