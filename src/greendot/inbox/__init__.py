"""Inboxes: notifications, delivery in order, redelivery, badges and receipts."""
