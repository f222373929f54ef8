"""Django app for Greendot: `INSTALLED_APPS += ["greendot.integrations.django"]`.

It has a token view, a webhook view with Django signals, and the outbox. docs/guides/django.md describes them.
"""

from greendot.integrations.django.conf import server
from greendot.integrations.django.outbox import notify_on_commit, send_on_commit

__all__ = ["notify_on_commit", "send_on_commit", "server"]
