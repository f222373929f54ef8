"""Protocols of other servers, translated at the edge."""
