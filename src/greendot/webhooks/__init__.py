"""Webhooks: events sent to apps, so that apps need not poll."""
