"""The HTTP application: all routes and how errors are answered."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from greendot.admin.http import OperationRoutes
from greendot.app.demo import DevRoutes
from greendot.app.http import KINDS, DocumentRoutes
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable
from greendot.http import problem
from greendot.http.backend import Backend, Dev
from greendot.http.operation import routes_of
from greendot.http.pages import admin_pages, docs_pages
from greendot.http.scopes import guarded

METRICS = "/metrics"


def make_app(
    backend: Backend, dev: Dev | None = None, *, admin: bool = False, docs: bool = True, metrics: bool = True
) -> Starlette:
    """The application; with `dev` also the demo page and its tokens, with `admin` the dashboard's page, with `docs` the
    documents of its APIs and the page that shows them; without `metrics` they are elsewhere."""
    kinds = [kind for kind in KINDS if docs or kind is not DocumentRoutes]
    routes = [guarded(route, backend.keys, backend.limiting) for kind in kinds for route in routes_of(kind(backend))]
    if not metrics:
        routes = [route for route in routes if route.path != METRICS]
    if docs:
        routes += docs_pages()
    if dev is not None:
        routes += DevRoutes(backend, dev).routes()
    if admin:
        routes += admin_pages()
    return _app(routes)


def make_metrics_app(backend: Backend) -> Starlette:
    """What a port of the metrics' own serves: them, and nothing else."""
    return _app([route for route in routes_of(OperationRoutes(backend)) if route.path == METRICS])


def make_admin_app() -> Starlette:
    """What a port of the dashboard's own serves: its page, and nothing else."""
    return _app(admin_pages())


def _app(routes: list[Route]) -> Starlette:
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
