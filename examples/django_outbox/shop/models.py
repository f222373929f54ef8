"""Orders, and the outbox table that Greendot reads."""

from typing import Any

from django.db import models


class Order(models.Model):
    """Order of one item by a user."""

    user = models.CharField(max_length=128)
    item = models.CharField(max_length=100)


class Outbox(models.Model):
    """Row for Greendot. Greendot sends a row after its transaction is committed.

    `greendot outbox install` creates the table, so Django makes no migrations for it. See docs/webhooks.md.
    """

    target = models.TextField()
    user_id = models.TextField()
    kind = models.TextField(null=True)
    room = models.TextField(null=True)
    name = models.TextField(null=True)
    body = models.JSONField()
    key = models.TextField(null=True)
    importance = models.TextField(null=True)
    collapse_key = models.TextField(null=True)
    push = models.BooleanField(null=True)

    class Meta:
        managed = False
        db_table = "greendot_outbox"

    @classmethod
    def notify(cls, user: str, kind: str, body: Any, *, key: str | None = None, **push: Any) -> None:
        """Send a notification to the user's inbox when the current transaction is committed.

        `push` may have `importance`, `collapse_key`, `push` (False: inbox only) and `room`.
        """
        cls.objects.create(target="notification", user_id=user, kind=kind, body=body, key=key, **push)

    @classmethod
    def say(cls, room: str, body: Any, *, user: str, name: str | None = None, key: str | None = None) -> None:
        """Send a message to a room as `user` when the current transaction is committed."""
        cls.objects.create(target="message", room=room, user_id=user, name=name, body=body, key=key)
