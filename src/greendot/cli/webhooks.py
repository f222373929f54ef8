"""Command `greendot webhooks`: states of webhooks, dead letters, replays and test requests."""

from __future__ import annotations

import secrets
from pathlib import Path

import click
from msgspec import structs

from greendot.app.webhooks import call_terms, make_hook
from greendot.cli import _undelivered
from greendot.cli._group import Group
from greendot.cli._options import json_option, print_json
from greendot.cli._settings import config_option, settings_from
from greendot.cli._store import StoreAccess, on_a_loop, store_options
from greendot.cli._tables import NOTHING, ago, print_table, several
from greendot.clock import SystemClock
from greendot.config import Settings
from greendot.config.fields import refuse
from greendot.config.webhooks import Hook, check_hook
from greendot.errors import ConfigError
from greendot.ids import new_message_id
from greendot.transport.http_client import HttpResponse, NotCalled
from greendot.webhooks.hook import ping_event

MOST_SHOWN = 200  # characters of an app's response


@click.group(cls=Group)
def webhooks() -> None:
    """Inspect, replay and test webhooks."""


@webhooks.command("list")
@json_option
@store_options
def list_(as_json: bool, access: StoreAccess) -> None:
    """List the webhook of each tenant, with its waiting, failing and dead events."""
    hooks = access.settings.hooks
    states = access.run(lambda store: store.hook_states(sorted(hooks)))
    if as_json:
        print_json({"webhooks": [state._asdict() | {"hook": state.tenant in hooks} for state in states]})
        return
    now = SystemClock().now_ms()
    rows = [
        (
            state.tenant,
            "none" if state.tenant not in hooks else "stopped" if state.stopped_at is not None else "on",
            str(state.waiting),
            str(state.failing),
            str(state.dead),
            ago(state.oldest_at, now),
            state.reason or NOTHING,
        )
        for state in states
    ]
    head = ("TENANT", "HOOK", "WAITING", "FAILING", "DEAD", "OLDEST", "STOP REASON")
    print_table(head, rows, "There are no webhooks. Set webhooks.url and webhooks.secret.")


@webhooks.command()
@json_option
@_undelivered.tenant_option
@store_options
def dead(as_json: bool, tenant: str | None, access: StoreAccess) -> None:
    """List events that were given up, the oldest first."""
    found = access.run(lambda store: store.dead_hooks(tenant, _undelivered.MOST_LISTED + 1))
    if as_json:
        print_json({"dead": [event._asdict() for event in found]})
        return
    now = SystemClock().now_ms()
    rows = [
        (str(e.id), e.tenant, e.type, e.stream, str(e.seq or NOTHING), str(e.attempts), ago(e.failed_at, now), e.reason)
        for e in found
    ]
    _undelivered.print_list(
        ("ID", "TENANT", "TYPE", "STREAM", "NUMBER", "ATTEMPTS", "LAST", "REASON"), rows, "greendot webhooks"
    )


@webhooks.command()
@_undelivered.which_options
@_undelivered.tenant_option
@store_options
def replay(ids: tuple[int, ...], everything: bool, tenant: str | None, access: StoreAccess) -> None:
    """Send dead letters again. A stopped webhook starts again."""
    wanted = _undelivered.wanted(ids, everything, "greendot webhooks dead")
    found = access.run(lambda store: store.replay_hooks(tenant, wanted))
    _undelivered.print_replayed(found, ids, f"{several(len(found), 'event')} will be sent.")


@webhooks.command()
@click.argument("url", metavar="[URL]", required=False)
@click.option(
    "--tenant", metavar="NAME", default="default", help="Tenant of the webhook and its secret. [default: default]"
)
@config_option
def test(url: str | None, tenant: str, config: Path | None) -> None:
    """Send a signed ping to URL, or to the webhook of the tenant, and print the response."""
    settings = settings_from(config, {})
    hook = _hook(settings, tenant, url)
    try:
        answer = on_a_loop(_ping(settings, tenant, hook))
    except NotCalled as error:
        raise ConfigError(str(error)) from None
    shown = answer.body[:MOST_SHOWN].decode(errors="replace")
    click.echo(f"The app responded with {answer.status}." + (f" {shown!r}" if shown else ""))
    if not 200 <= answer.status < 300:
        raise ConfigError("the app did not accept the ping. It must respond with a status from 200 to 299.")
    click.echo("The app accepted the ping.")


def _hook(settings: Settings, tenant: str, url: str | None) -> Hook:
    known = settings.hooks.get(tenant)
    if known is None and url is None:
        raise ConfigError(f"tenant {tenant} has no webhook. Give a URL, or set webhooks.url and webhooks.secret.")
    if known is None:
        secret = secrets.token_hex(32)
        click.echo(f"Tenant {tenant} has no webhook. The ping is signed with this secret: {secret}")
        known = Hook(secret=secret)
    hook = structs.replace(known, url=url or known.url)
    refuse(check_hook("webhooks", hook, settings.webhooks))
    return hook


async def _ping(settings: Settings, tenant: str, hook: Hook) -> HttpResponse:
    clock = SystemClock()
    made = make_hook(tenant, hook, call_terms(settings), clock)
    try:
        return await made.post([ping_event(tenant, new_message_id(), clock.now_ms())])
    finally:
        await made.close()
