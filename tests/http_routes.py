"""HTTP application whose routes tests list but never call."""

from __future__ import annotations

from types import SimpleNamespace

from starlette.applications import Starlette

from greendot.app.http import HttpServices, make_app


def uncalled_app() -> Starlette:
    services = dict.fromkeys(HttpServices.__struct_fields__) | {"node": SimpleNamespace(sessions_of=None)}
    return make_app(HttpServices(**services))  # type: ignore[arg-type]
