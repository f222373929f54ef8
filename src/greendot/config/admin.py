"""The dashboard: what can be set, and what is wrong with it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from greendot.config.mistakes import Mistake, Mistakes, Secret

SHORTEST_KEY = 32


class Admin(Struct, frozen=True, forbid_unknown_fields=True):
    """The dashboard at `/admin`, for people who run the server."""

    enabled: bool = False  # at /admin; with --dev it is on
    host: str = ""  # with a port of its own: the address to listen on; empty: that of the server
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  # of its own; 0: on the server's
    key: Secret = ""  # opens it for all tenants and nodes; empty: API keys only


def check_admin(admin: Admin, server_port: int) -> Mistakes:
    """All that is wrong."""
    if admin.key and len(admin.key) < SHORTEST_KEY:
        yield Mistake(
            ("admin.key",),
            f"admin.key is shorter than {SHORTEST_KEY} characters and could be guessed. "
            "Make one with: openssl rand -hex 32",
        )
    if admin.port and admin.port == server_port:
        yield Mistake(
            ("admin.port", "server.port"),
            f"admin.port ({admin.port}) is the server's own: leave it out to have the dashboard there, "
            "or choose another.",
        )
    if admin.host and not admin.port:
        yield Mistake(
            ("admin.host", "admin.port"),
            "admin.host is set, and admin.port is not: give the dashboard a port of its own.",
        )
