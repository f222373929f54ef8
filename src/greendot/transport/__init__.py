"""Listener, HTTP server, WebSocket handshake and framing, connections, TLS, ingress policy, outbound HTTP."""
