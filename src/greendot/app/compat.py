"""Foreign protocols of a server, from the settings. A server without them imports none of their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.routing import Route

from greendot.app.node import Node
from greendot.auth.api_keys import ApiKeys
from greendot.config import Settings
from greendot.transport.upgrade import SocketRoute

if TYPE_CHECKING:
    from greendot.compat.connection import NodeServices


class ForeignRoutes(Struct, frozen=True):
    """Paths that foreign protocols have on the main port."""

    sockets: list[SocketRoute] = []
    http: list[Route] = []


def make_foreign(settings: Settings, node: Node, keys: ApiKeys) -> ForeignRoutes:
    """Return the paths of the protocols that some tenant has."""
    found = ForeignRoutes()
    if settings.centrifuges:
        _add_centrifuge(found, settings, node, keys)
    return found


def _node_services(settings: Settings, node: Node) -> NodeServices:
    from greendot.compat.connection import NodeServices

    return NodeServices(
        node.clock,
        node.context,
        node.connections,
        node.dispatcher,
        node.rooms,
        settings.presence.heartbeat_s,
        settings.auth.longest_token_ms,
    )


def _add_centrifuge(found: ForeignRoutes, settings: Settings, node: Node, keys: ApiKeys) -> None:
    from greendot.compat.centrifuge.api import ApiServices, ServerApi
    from greendot.compat.centrifuge.channel_model import Namespaces, Rules
    from greendot.compat.centrifuge.channels import CentrifugeServices
    from greendot.compat.centrifuge.http import ApiRoutes
    from greendot.compat.centrifuge.server import CentrifugeServer

    namespaces = {
        tenant: Namespaces(
            {
                name: Rules(own.history, own.recover, own.presence, own.join_leave, own.publish, own.subscribe)
                for name, own in given.namespaces.items()
            }
        )
        for tenant, given in settings.centrifuges.items()
    }
    services = CentrifugeServices(
        _node_services(settings, node), node.hello, node.tokens, node.store, node.room_messages, node.rate_limits
    )
    server = CentrifugeServer(services, namespaces)
    more = ApiServices(node.engine, node.backpressure, node.rpc, node.tenant_stats, node.disconnect, node.started_at)
    found.sockets.append(server.route)
    found.http.extend(ApiRoutes(ServerApi(services, server.channels, more), keys, node.rate_limits).routes())
