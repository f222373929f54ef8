"""Rooms: members, messages, occupancy, typing, signals and delivery to subscribers."""
