"""The HTTP application: all routes and how errors are answered."""

from __future__ import annotations

from starlette.applications import Starlette

from greendot.api import problem
from greendot.api.backend import Backend, Dev
from greendot.api.contacts import ContactRoutes
from greendot.api.dev import DevRoutes
from greendot.api.devices import DeviceRoutes
from greendot.api.notifications import NotificationRoutes
from greendot.api.operations import OperationRoutes
from greendot.api.presence import PresenceRoutes
from greendot.api.rooms import RoomRoutes
from greendot.api.scopes import guarded
from greendot.api.tokens import TokenRoutes
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable


def make_app(backend: Backend, dev: Dev | None = None) -> Starlette:
    """The application; with `dev` also the demo page and its tokens."""
    people = (PresenceRoutes, ContactRoutes, DeviceRoutes)
    kinds = (OperationRoutes, *people, RoomRoutes, NotificationRoutes, TokenRoutes)
    routes = [guarded(route, backend.keys, backend.limiting) for kind in kinds for route in kind(backend).routes()]
    if dev is not None:
        routes += DevRoutes(backend, dev).routes()
    app = Starlette(
        routes=routes,
        exception_handlers={
            problem.Problem: problem.on_problem,
            Refused: problem.on_refused,
            EngineUnavailable: problem.on_unavailable,
            StoreUnavailable: problem.on_unavailable,
            Unstorable: problem.on_unstorable,
            404: problem.on_not_found,
            500: problem.on_failure,
            405: problem.on_method,
        },
    )
    # A path with a slash too many is an unknown path: a redirect would be built from whatever Host the client named.
    app.router.redirect_slashes = False
    return app
