"""Relay from an app's outbox table into inboxes and rooms."""
