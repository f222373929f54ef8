"""The dashboard: what can be set, and what is wrong with it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from greendot.config.fields import Mistakes, Port, Secret, about, check_length


class Admin(Struct, frozen=True, forbid_unknown_fields=True):
    """The dashboard at `/admin`, for people who run the server."""

    enabled: Annotated[bool, about("at /admin; with --dev it is on")] = False
    host: Annotated[str, about("with a port of its own: the address to listen on; empty: that of the server")] = ""
    port: Annotated[Port, about("of its own; 0: on the server's")] = 0
    key: Annotated[Secret, about("opens it for all tenants and nodes; empty: API keys only")] = ""


def check_admin(admin: Admin, server_port: int) -> Mistakes:
    """Mistakes in `[admin]`."""
    yield from check_length("admin.key", admin.key)
    if admin.port and admin.port == server_port:
        yield (
            f"admin.port ({admin.port}) is the server's own: leave it out to have the dashboard there, "
            "or choose another."
        )
    if admin.host and not admin.port:
        yield "admin.host is set, and admin.port is not: give the dashboard a port of its own."
