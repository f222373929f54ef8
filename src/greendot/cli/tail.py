"""Command `greendot tail`: events as they happen.

Each node filters its own events, keeps a few and counts the rest. A terminal that does not keep up blocks this program
only: the server sends nothing more, and reports afterwards how many events were left out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
import msgspec

from greendot.cli._admin_socket import Live, Where, dashboard_options, follow, piped, some_tenant_option
from greendot.cli._tables import printable, several, shortened
from greendot.cli._terminal import check_reader
from greendot.config import check_id
from greendot.node.event_recorder_model import KINDS

MOST_BODY = 60  # characters of a message's body, which dev servers show; JSON has all of it
BACK = "The server is back. Events during its absence were missed."
READY = 2  # samples after which all nodes record events


@click.command()
@click.option("--user", metavar="U", help="Only events of this user.")
@click.option("--room", metavar="R", help="Only events in this room.")
@click.option("--node", metavar="N", help="Only events on this node.")
@click.option(
    "--type", "kinds", type=click.Choice(KINDS), multiple=True, help="Only events of this type; may be repeated."
)
@some_tenant_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for programs.")
@dashboard_options
def tail(
    user: str | None,
    room: str | None,
    node: str | None,
    kinds: tuple[str, ...],
    tenant: str | None,
    as_json: bool,
    find_server: Callable[[], Where],
) -> None:
    """Show events of all nodes as they happen, until Ctrl-C.

    \b
    greendot tail
    greendot tail --user ann --type connects --type presence
    greendot tail --room lobby --json | jq .what
    """
    named = {"user": user, "room": room, "node": node, "tenant": tenant}
    for name, given in named.items():
        if given is not None:
            check_id(name, given)
    wanted = {"type": "tail", "kinds": [*(kinds or KINDS)], **named}
    events = EventTail(wanted, as_json=as_json)
    try:
        piped(follow(find_server(), events.show, lambda: events.began, BACK))
    finally:
        events.sum_up()


class EventTail:
    """Output of events, with a count of those shown and left out."""

    def __init__(self, wanted: dict[str, Any], *, as_json: bool) -> None:
        self.began = False
        self._wanted = wanted
        self._as_json = as_json
        self._shown = 0
        self._left_out = 0

    async def show(self, live: Live) -> None:
        """Show events until the server goes away."""
        await live.ask(**self._wanted)
        samples = 0
        while True:
            frame = await live.next()
            check_reader()
            if frame["type"] == "tail":
                self._show(frame["data"], with_tenant=live.welcome["every"])
            else:
                samples += 1
                if samples == READY and not self.began:
                    self.began = True
                    _note(f"Following {', '.join(self._wanted['kinds'])}. Stop with Ctrl-C.")

    def _show(self, told: dict[str, Any], *, with_tenant: bool) -> None:
        self._shown += len(told["events"])
        self._left_out += told["skipped"]
        if self._as_json:
            lines = [msgspec.json.encode(event).decode() for event in told["events"]]
            lines += [f'{{"skipped":{told["skipped"]}}}'] if told["skipped"] else []
        else:
            lines = [line(event, with_tenant=with_tenant) for event in told["events"]]
            lines += [f"… {several(told['skipped'], 'event')} skipped: too many at once"] if told["skipped"] else []
        print("\n".join(lines), flush=True)

    def sum_up(self) -> None:
        if self.began:
            left_out = f", {self._left_out} skipped" if self._left_out else ""
            _note(f"{several(self._shown, 'event')}{left_out}.")


def line(event: dict[str, Any], *, with_tenant: bool) -> str:
    """Format an event: time, node, kind and action; then user, room and other details."""
    at = datetime.fromtimestamp(event["at"] / 1000)
    number = event.get("number")
    more = [
        event.get("user"),
        f"in {event['room']}" if "room" in event else None,
        None if number is None else str(number) if event["kind"] == "connects" else f"#{number}",
        event.get("detail"),
        event.get("session"),
        f"({event['tenant']})" if with_tenant else None,
        shortened(event["body"], MOST_BODY) if "body" in event else None,
    ]
    head = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}  {event['node']}  {event['kind']:<13}  {event['what']:<14}"
    return printable("  ".join([head, *(it for it in more if it)]).rstrip())


def _note(text: str) -> None:
    """Print to stderr, so that a pipe gets events only."""
    click.echo(text, err=True)
