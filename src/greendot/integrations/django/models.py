"""Model of the outbox, for admin pages and tests of the app."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Outbox(models.Model):
    """Row for Greendot, which removes it when it has been sent.

    `failed_at` and `error` are set if the row can never be sent. `notify_on_commit` and `send_on_commit` write rows.
    """

    tenant = models.TextField(default="default")
    target = models.TextField(choices=[("notification", "notification"), ("message", "message")])
    user_id = models.TextField()
    room = models.TextField(null=True, blank=True)
    kind = models.TextField(null=True, blank=True)
    name = models.TextField(null=True, blank=True)
    body = models.JSONField()
    key = models.TextField(null=True, blank=True)
    importance = models.TextField(null=True, blank=True)
    collapse_key = models.TextField(null=True, blank=True)
    push = models.BooleanField(null=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(default=0)
    error = models.TextField(null=True, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Table that Greendot's own SQL creates, in the migration or by `greendot outbox install`."""

        managed = False
        db_table = "greendot_outbox"
        verbose_name = "outbox row"

    def __str__(self) -> str:
        return f"{self.target} for {self.room if self.target == 'message' else self.user_id}"
