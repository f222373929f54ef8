"""Command `greendot notify`: notify a user, through a server or directly in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from greendot.cli._http import ask, check_target, url_option
from greendot.cli._options import check_ids, json_option, print_json
from greendot.cli._settings import config_option
from greendot.cli._store import StoreAccess, store_option
from greendot.clock import SystemClock
from greendot.config import check_id
from greendot.errors import ConfigError
from greendot.ids import new_message_id
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, decode, has_vast_number, is_too_deep
from greendot.store.inbox import Notice


@click.command()
@click.argument("user")
@click.option("--kind", required=True, metavar="K", help="Kind of the notification, such as order.shipped.")
@click.option("--body", default="null", metavar="JSON", help="Body of the notification, such as '{\"order\": 17}'.")
@click.option("--key", metavar="K", help="Idempotency key: a second call with the same key creates nothing.")
@url_option
@store_option
@click.option("--tenant", help="With --store: tenant of the user. [default: default]")
@json_option
@config_option
def notify(
    user: str,
    kind: str,
    body: str,
    key: str | None,
    url: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    config: Path | None,
) -> None:
    """Send a notification to the inbox of USER.

    The command calls a running server with its API key (GREENDOT_API_KEY; the key of a dev server is found in its
    folder). Connected devices receive the notification at once. With --store the command writes directly to the store.
    """
    check_ids("user", (user,), tenant or "default")
    notice = Notice(
        tenant=tenant or "default",
        user=user,
        kind=check_id("kind", kind),
        body=_json(body),
        key=check_id("key", key or new_message_id()),
        created_at=SystemClock().now_ms(),
    )
    check_target(url, store, tenant)
    if store is not None:
        answer = _write(StoreAccess(store, config), notice)
        how = "\nConnected devices receive it within about a minute, when the servers read the store again."
    else:
        said = {"user": notice.user, "kind": notice.kind, "body": msgspec.Raw(notice.body), "key": notice.key}
        answer = ask(config, url, "/v1/notifications", said).data
        how = ""
    if as_json:
        print_json(answer)
        return
    if answer.get("seq") is None:
        click.echo(f"Sent to the connected devices of {user}. Notifications of kind {kind} are not stored.")
    elif not answer.get("new", True):
        click.echo(f"{user} already has a notification with this key: number {answer['seq']}, id {answer['id']}.")
    else:
        click.echo(f"Notified {user}: number {answer['seq']}, id {answer['id']}.{how}")


def _json(text: str) -> bytes:
    body = text.encode(errors="surrogateescape")
    try:
        decode(body, object)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--body is not valid JSON ({error}). Write a string with both quotes: --body '\"hello\"'"
        ) from None
    if len(body) > MAX_FRAME:
        raise ConfigError(f"--body may have at most {MAX_FRAME} bytes.")
    if is_too_deep(body):
        raise ConfigError(f"--body may be nested at most {MAX_DEPTH} levels deep.")
    if has_vast_number(body):
        raise ConfigError(f"--body {VAST_NUMBER}.")
    return body


def _write(access: StoreAccess, notice: Notice) -> dict[str, Any]:
    kinds = access.settings.kinds
    promise = kinds[notice.kind].promise if notice.kind in kinds else "durable"
    if promise in ("ephemeral", "recomputable"):
        raise ConfigError(
            f"kind {notice.kind} has the promise {promise}: its notifications are not stored. Leave out --store."
        )
    notice = msgspec.structs.replace(notice, ack=promise == "acknowledged")
    (created,) = access.run(lambda store: store.notify([notice]))
    return {"id": created.notification.id, "seq": created.notification.seq, "new": created.new}
