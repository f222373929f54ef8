"""SDK for the backend of an app: `from greendot import Server`. Synchronous, for threads, over the HTTP API."""

from greendot.errors import BadWebhook
from greendot.sdk.errors import (
    BadAnswer,
    BadKey,
    BadRequest,
    Forbidden,
    NotFound,
    Problem,
    RateLimited,
    ServerError,
    Unavailable,
    Unreachable,
)
from greendot.sdk.inbox import Notification
from greendot.sdk.responses import (
    Contact,
    Inbox,
    InboxEntry,
    Member,
    Members,
    Message,
    Notified,
    Online,
    Present,
    Receipt,
    Receipts,
    Revoked,
    Room,
    Sent,
)
from greendot.sdk.server import Server

__all__ = [
    "BadAnswer",
    "BadKey",
    "BadRequest",
    "BadWebhook",
    "Contact",
    "Forbidden",
    "Inbox",
    "InboxEntry",
    "Member",
    "Members",
    "Message",
    "NotFound",
    "Notification",
    "Notified",
    "Online",
    "Present",
    "Problem",
    "RateLimited",
    "Receipt",
    "Receipts",
    "Revoked",
    "Room",
    "Sent",
    "Server",
    "ServerError",
    "Unavailable",
    "Unreachable",
]
