"""Python client: `async with Client(url, token=…) as me:`."""

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
    QueueFull,
    Unreachable,
)
from greendot.client.inbox import Inbox
from greendot.client.reactions import Reactions
from greendot.client.records import Cursors
from greendot.client.send_queue import SendQueue
from greendot.client.storage import CursorStorage, FileCursors, MemoryCursors
from greendot.client.stream import EventStream
from greendot.client.text import SeenWords, TypingWords, seen_text, typing_text
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
    "CursorStorage",
    "Cursors",
    "Disconnected",
    "EventStream",
    "Failure",
    "FileCursors",
    "Inbox",
    "MemoryCursors",
    "Overrun",
    "QueueFull",
    "Reactions",
    "SeenWords",
    "SendQueue",
    "StateChanged",
    "Truncated",
    "TypingWords",
    "Unreachable",
    "body_of",
    "seen_text",
    "typing_text",
    "verify_webhook",
]
