"""The Python client: `async with Client(url, token=…) as me:`."""

from greendot.client.backoff import Backoff
from greendot.client.client import Client
from greendot.client.codec import Failure, StateChanged, Truncated, body_of
from greendot.client.errors import (
    BadReply,
    ClientError,
    Closed,
    CommandRefused,
    ConnectionRefused,
    Disconnected,
    Overrun,
    Unreachable,
)
from greendot.client.inbox import Inbox
from greendot.client.records import Cursors
from greendot.client.state import typing_text
from greendot.client.stream import EventStream
from greendot.client.webhooks import BadWebhook, verify_webhook

__all__ = [
    "Backoff",
    "BadReply",
    "BadWebhook",
    "Client",
    "ClientError",
    "Closed",
    "CommandRefused",
    "ConnectionRefused",
    "Cursors",
    "Disconnected",
    "EventStream",
    "Failure",
    "Inbox",
    "Overrun",
    "StateChanged",
    "Truncated",
    "Unreachable",
    "body_of",
    "typing_text",
    "verify_webhook",
]
