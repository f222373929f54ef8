"""Visibility, who may see whom: policy, cache, updates, rooms as each subscriber sees them, and the app's webhook."""
