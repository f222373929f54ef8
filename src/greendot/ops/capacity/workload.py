"""What users do, and what that makes a second at the busiest time."""

from __future__ import annotations

from msgspec import Struct

DAY_S = 86_400
HOUR_S = 3_600


class Workload(Struct, frozen=True, kw_only=True):
    """What is given. Rates are averages; `peak` says how much more there is at the busiest time."""

    users: int
    online: float = 0.1  # the share of them that is connected at the busiest time
    devices: float = 1.2  # connections of each who is
    rooms: float = 5.0  # that a user is in
    room_size: float = 20.0  # members of a room
    messages: float = 10.0  # a user sends in a day
    messages_per_s: float | None = None  # in place of it: of all together, at the busiest time
    typing: float = 1.0  # starts of typing for each message
    watched: float = 50.0  # users whose presence a connection follows
    connects: float = 2.0  # of each device in an hour
    notifications: float = 5.0  # a user gets in a day
    body: int = 128  # bytes of a message or notification
    peak: float = 3.0
    per_node: int = 15_000  # connections that one process is to hold

    @property
    def online_users(self) -> float:
        return self.users * self.online

    @property
    def connections(self) -> float:
        return self.online_users * self.devices

    @property
    def messages_s(self) -> float:
        """At the busiest time, as all that is a second here."""
        if self.messages_per_s is not None:
            return self.messages_per_s
        return self.users * self.messages / DAY_S * self.peak

    @property
    def messages_day(self) -> float:
        return self.messages_s / self.peak * DAY_S

    @property
    def others(self) -> float:
        """Connections in a room beside the sender's own."""
        return max(self.room_size - 1, 0.0) * self.online * self.devices

    @property
    def listeners(self) -> float:
        """Connections that get a message."""
        return self.devices + self.others

    @property
    def watchers(self) -> float:
        """Connections that are told when somebody comes or goes: whom people follow, follows them."""
        return self.watched * self.online * self.devices

    @property
    def typing_s(self) -> float:
        return self.messages_s * self.typing

    @property
    def connects_s(self) -> float:
        return self.connections * self.connects / HOUR_S * self.peak

    @property
    def changes_s(self) -> float:
        """Of presence that others see: a user's first device comes, the last one leaves."""
        return 2 * self.online_users * self.connects / HOUR_S * self.peak

    @property
    def notifications_s(self) -> float:
        return self.users * self.notifications / DAY_S * self.peak

    @property
    def deliveries_s(self) -> float:
        """Writes to sockets."""
        return (
            self.messages_s * self.listeners
            + self.typing_s * self.others
            + self.changes_s * self.watchers
            + self.notifications_s * self.online * self.devices
        )

    @property
    def room_count(self) -> float:
        return max(self.users * self.rooms / max(self.room_size, 1.0), 1.0)
