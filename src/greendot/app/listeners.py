"""Ports of a server: its own, and separate ones for the dashboard and the metrics if configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from greendot.app.demo import Dev
from greendot.app.http import HttpServices, Place, make_admin_app, make_app, make_metrics_app
from greendot.app.node import Node
from greendot.config import Settings
from greendot.errors import ConfigError
from greendot.http.pages import Headers
from greendot.transport.listener import Listener
from greendot.transport.tls import Certificate
from greendot.transport.upgrade import SocketRoute
from greendot.transport.websocket import Framing

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from greendot.admin.dashboard import Dashboard


class ForeignApi(Protocol):
    """Foreign protocol on the main port: its WebSocket path and its HTTP routes."""

    @property
    def sockets(self) -> SocketRoute: ...
    @property
    def routes(self) -> Sequence[BaseRoute]: ...


class Ports:
    """Listeners of a server; each is closed by itself."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        services: HttpServices,
        dashboard: Dashboard | None,
        dev: Dev | None,
        foreign: Sequence[ForeignApi] = (),
    ) -> None:
        self._settings = settings
        self._node = node
        self._worker = 1
        tls = settings.tls
        self._certificate = Certificate(tls.cert, tls.key) if tls.cert else None
        self._hsts_s = 0 if settings.server.dev else tls.hsts_s
        dashboard_socket = None if dashboard is None else _dashboard_sockets(dashboard)
        here = dashboard_socket is not None and not settings.admin.port
        place: Place = "here" if here else "off" if dashboard is None else "elsewhere"
        api = settings.api
        app = make_app(services, dev, admin=place, docs=api.docs, client=api.client, metrics=not settings.metrics.port)
        app.router.routes += [route for api in foreign for route in api.routes]
        self.main = Listener(
            node.connections,
            Headers(app, self._is_ending),
            self._certificate,
            hsts_s=self._hsts_s,
            dashboard_socket=dashboard_socket if here else None,
            routes=[api.sockets for api in foreign],
        )
        self.admin = None if dashboard_socket is None or here else self._own(make_admin_app(), dashboard_socket)
        self.metrics = self._own(make_metrics_app(services)) if settings.metrics.port else None

    def _own(self, app: Any, dashboard_socket: Callable[[], Framing] | None = None) -> Listener:
        """Return a listener for one purpose, without client connections."""
        return Listener(
            self._node.connections,
            Headers(app, self._is_ending),
            self._certificate,
            hsts_s=self._hsts_s,
            dashboard_socket=dashboard_socket,
            clients=False,
        )

    def _is_ending(self) -> bool:
        return self._node.draining

    def __iter__(self) -> Iterator[Listener]:
        return iter([server for server in (self.main, self.admin, self.metrics) if server is not None])

    def share(self, worker: int) -> None:
        """Share the ports with other processes, as the worker of this number. Call before `start`.

        Each worker has a metrics port of its own: a collector must reach every worker, and know which one answered.
        """
        self._worker = worker
        self.main.shared = True
        if self.admin is not None:
            self.admin.shared = True

    async def start(self) -> None:
        """Listen on all ports. If one is not available, stop accepting on the others and raise ConfigError."""
        server, admin, metrics = self._settings.server, self._settings.admin, self._settings.metrics
        try:
            await self.main.start(server.host, server.port)
            if self.admin is not None:
                await self.admin.start(admin.host or server.host, admin.port)
            if self.metrics is not None:
                await self.metrics.start(metrics.host or server.host, metrics.port + self._worker - 1)
        except ConfigError:
            self.stop_accepting()
            raise

    def reload(self) -> None:
        """Read the certificate again, if there is one."""
        for server in self:
            server.reload()

    def stop_accepting(self) -> None:
        """Accept no new clients. The metrics port stays open, so that the drain can be observed."""
        self.main.stop_accepting()
        if self.admin is not None:
            self.admin.stop_accepting()


def _dashboard_sockets(dashboard: Dashboard) -> Callable[[], Framing]:
    from greendot.admin.socket import DashboardSocket

    return lambda: DashboardSocket(dashboard)
