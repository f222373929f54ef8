"""Apps of the Pusher protocol: each is a tenant, with keys of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct


class PusherApp(Struct, frozen=True):
    """Keys and limits of one app."""

    tenant: str
    app_id: str
    key: str
    secrets: tuple[str, ...]  # the first signs; all are accepted
    client_events: bool = True
    client_events_per_s: int = 10
    presence_members: int = 100  # members of a presence channel; 0: no limit
    event_bytes: int = 10_240  # data of one event
    subscription_count: bool = False
    webhook_url: str = ""
    webhook_events: frozenset[str] = frozenset()


class PusherApps:
    """All apps of a server. `replace` changes them while the server runs."""

    def __init__(self, apps: Iterable[PusherApp]) -> None:
        self.replace(apps)

    def replace(self, apps: Iterable[PusherApp]) -> None:
        """Use these apps from now on. Open sockets use the new secrets; those whose key is gone are closed."""
        self._by_key = {app.key: app for app in apps}
        self._by_id = {app.app_id: app for app in self._by_key.values()}
        self._by_tenant = {app.tenant: app for app in self._by_key.values()}

    def by_key(self, key: str) -> PusherApp | None:
        return self._by_key.get(key)

    def by_id(self, app_id: str) -> PusherApp | None:
        return self._by_id.get(app_id)

    def of_tenant(self, tenant: str) -> PusherApp | None:
        return self._by_tenant.get(tenant)

    def __iter__(self) -> Iterator[PusherApp]:
        return iter([*self._by_key.values()])
