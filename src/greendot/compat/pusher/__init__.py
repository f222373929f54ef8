"""Pusher Channels protocol 7: WebSocket protocol, HTTP API and webhooks."""
