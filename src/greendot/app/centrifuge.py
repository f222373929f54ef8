"""Centrifuge protocol of a server, made from the settings and the node. Imported only if a tenant has the protocol."""

from __future__ import annotations

from starlette.routing import Route

from greendot.app.node import Node
from greendot.app.webhooks import call_terms
from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.compat.centrifuge.api import ApiServices, ServerApi
from greendot.compat.centrifuge.channel_model import Namespaces, Rules
from greendot.compat.centrifuge.channels import CentrifugeServices, Channels
from greendot.compat.centrifuge.commands import ChannelCommands
from greendot.compat.centrifuge.http import ApiRoutes
from greendot.compat.centrifuge.protocol import PATH, CentrifugeProtocol
from greendot.compat.centrifuge.rpc import RpcProxy
from greendot.config import Settings
from greendot.config.centrifuge import Centrifuge
from greendot.transport.upgrade import SocketRoute
from greendot.visibility.webhook_client import HttpVisibilityClient


class CentrifugeService:
    """Centrifuge protocol on one node: its WebSocket path, and the HTTP routes of the server API."""

    def __init__(self, settings: Settings, node: Node, keys: ApiKeys) -> None:
        services = CentrifugeServices(node.foreign_services(), node.hello, node.tokens, node.revocation_service)
        dev = settings.server.dev
        namespaces = {tenant: make_namespaces(given, dev=dev) for tenant, given in settings.centrifuges.items()}
        channels = Channels(services, namespaces)
        commands = ChannelCommands(services, channels, namespaces)
        node.connections.order_listeners.append(commands.ordered)
        node.revocation_service.token_listeners.append(commands.token_revoked)
        self._rpc = RpcProxy(node.dispatcher, make_rpc_clients(settings, node.clock))
        self.sockets = SocketRoute(PATH, CentrifugeProtocol(services, commands, namespaces, self._rpc).connect)
        more = ApiServices(node.rpc, node.tenant_stats, node.disconnect_all, node.started_at)
        self.routes: list[Route] = ApiRoutes(ServerApi(services, channels, more), keys, node.rate_limits).routes()

    async def close(self) -> None:
        await self._rpc.close()


def make_rpc_clients(settings: Settings, clock: Clock) -> dict[str, HttpVisibilityClient]:
    """Return the clients of the apps that answer calls, by tenant."""
    return {
        tenant: HttpVisibilityClient(
            of.rpc_url, of.rpc_secret, call_terms(settings, of.rpc_timeout_s), clock, most=of.rpc_concurrent
        )
        for tenant, of in settings.centrifuges.items()
        if of.rpc_url
    }


def make_namespaces(given: Centrifuge, *, dev: bool) -> Namespaces:
    """Return the rules of a tenant's channels.

    Without any declared namespace, and in development mode, all channels create rooms. Otherwise only those of declared
    namespaces do.
    """
    return Namespaces(
        {
            name: Rules(own.history, own.recover, own.presence, own.join_leave, own.publish, own.subscribe)
            for name, own in given.namespaces.items()
        },
        creates=dev or not given.namespaces,
    )
