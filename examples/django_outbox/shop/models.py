"""Orders, and the table through which Greendot is told of them."""

from typing import Any

from django.db import models


class Order(models.Model):
    """What somebody has ordered."""

    user = models.CharField(max_length=128)
    item = models.CharField(max_length=100)


class Outbox(models.Model):
    """A row for Greendot: what is inserted in a transaction is sent when that is committed, and only then.

    The table is Greendot's (`greendot outbox install`), so Django makes no migrations for it. See docs/outbox.md.
    """

    target = models.TextField()
    user_id = models.TextField()
    kind = models.TextField(null=True)
    room = models.TextField(null=True)
    name = models.TextField(null=True)
    body = models.JSONField()
    key = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = "greendot_outbox"

    @classmethod
    def notify(cls, user: str, kind: str, body: Any, *, key: str | None = None) -> None:
        """Into the user's inbox, with the transaction it is called in."""
        cls.objects.create(target="notification", user_id=user, kind=kind, body=body, key=key)

    @classmethod
    def say(cls, room: str, body: Any, *, user: str, name: str | None = None, key: str | None = None) -> None:
        """Into a room, as `user`, with the transaction it is called in."""
        cls.objects.create(target="message", room=room, user_id=user, name=name, body=body, key=key)
