"""The relay: from an app's outbox into inboxes and rooms."""
