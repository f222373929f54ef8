"""Webhooks: telling apps what happened, so that they need not ask."""
