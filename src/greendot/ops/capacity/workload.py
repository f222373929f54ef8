"""Workload: activity of users, and the resulting rates per second at the busiest time."""

from __future__ import annotations

from msgspec import Struct

DAY_S = 86_400
HOUR_S = 3_600


class Workload(Struct, frozen=True, kw_only=True):
    """Input of a plan. Rates are averages; `peak` is the factor of the busiest time."""

    users: int
    online: float = 0.1  # share of the users that is connected at the busiest time
    devices: float = 1.2  # connections of a user who is online
    rooms: float = 5.0  # rooms of a user
    room_size: float = 20.0  # members of a room
    messages: float = 10.0  # sent by a user per day
    messages_per_s: float | None = None  # in place of `messages`: of all users together, at the busiest time
    typing: float = 1.0  # starts of typing per message
    watched: float = 50.0  # users that a connection watches
    connects: float = 2.0  # of a device per hour
    notifications: float = 5.0  # for a user per day
    body: int = 128  # bytes of a message or notification
    peak: float = 3.0
    per_node: int = 15_000  # connections of one process, at most

    @property
    def online_users(self) -> float:
        return self.users * self.online

    @property
    def connections(self) -> float:
        return self.online_users * self.devices

    @property
    def messages_s(self) -> float:
        """Return the messages per second at the busiest time, as all rates per second here."""
        if self.messages_per_s is not None:
            return self.messages_per_s
        return self.users * self.messages / DAY_S * self.peak

    @property
    def messages_day(self) -> float:
        return self.messages_s / self.peak * DAY_S

    @property
    def others(self) -> float:
        """Return the connections in a room without the sender's own."""
        return max(self.room_size - 1, 0.0) * self.online * self.devices

    @property
    def listeners(self) -> float:
        """Return the connections that get a message."""
        return self.devices + self.others

    @property
    def watchers(self) -> float:
        """Return the connections that get a presence change. Assumes that watching is mutual."""
        return self.watched * self.online * self.devices

    @property
    def typing_s(self) -> float:
        return self.messages_s * self.typing

    @property
    def connects_s(self) -> float:
        return self.connections * self.connects / HOUR_S * self.peak

    @property
    def changes_s(self) -> float:
        """Return the visible presence changes per second: a user's first device connects, the last one leaves."""
        return 2 * self.online_users * self.connects / HOUR_S * self.peak

    @property
    def notifications_s(self) -> float:
        return self.users * self.notifications / DAY_S * self.peak

    @property
    def deliveries_s(self) -> float:
        """Return the writes to sockets per second."""
        return (
            self.messages_s * self.listeners
            + self.typing_s * self.others
            + self.changes_s * self.watchers
            + self.notifications_s * self.online * self.devices
        )

    @property
    def room_count(self) -> float:
        return max(self.users * self.rooms / max(self.room_size, 1.0), 1.0)
