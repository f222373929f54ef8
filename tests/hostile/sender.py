"""Program of `flood`: reads a `Flood` as JSON from standard input and prints an `Outcome` for each connection.

The program loads the standard library only, so that its start takes little time beside the measurement.
"""

import json
import selectors
import socket
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

WHOLE = 256 * 1024  # default of bytes written to a socket at a time
KEPT = 64 * 1024  # bytes kept of the last data of a connection
LOOK_S = 0.05  # longest interval between checks for the end of a flood
PATIENCE_S = 30.0  # for the conditions of a flood and the responses to an opening


class _Sender:
    """One connection."""

    def __init__(self, asked: dict[str, Any], opening: list[dict[str, str]]) -> None:
        self.sent = 0  # bytes of the flood
        self.received = b""  # the last bytes since the flood began
        self.ended = "open"
        self._piece: int = asked["piece"]
        self.socket = socket.create_connection(("127.0.0.1", asked["port"]), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each write is a packet
        self.refused = False  # the server accepts no more, but its data can still be read
        for step in opening:
            self.socket.sendall(b64decode(step["send"]))
            wanted, answer = b64decode(step["answer"]), b""
            while wanted not in answer:
                more = self.socket.recv(65536)
                assert more, f"no {wanted!r} in {answer!r}"
                answer += more
        self.socket.setblocking(False)

    def send(self, data: memoryview) -> None:
        """Write more of the flood, from where the socket stopped accepting it."""
        try:
            for _ in range(1 if self._piece == WHOLE else 256):
                at = self.sent % (len(data) // 2)
                self.sent += self.socket.send(data[at : at + self._piece])
        except BlockingIOError:
            pass
        except ConnectionError:
            self.refused = True

    def read(self) -> bool:
        """Read available data; return False at the end."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return True
        except ConnectionError:
            self.ended = "reset"
            return False
        if not data:
            self.ended = "closed"
            return False
        self.received = (self.received + data)[-KEPT:]
        return True


class _Generator:
    """All connections of a flood."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self._returns: bool = asked["returns"]
        self._selector = selectors.DefaultSelector()
        self._senders: list[_Sender] = []

    def run(self) -> list[dict[str, Any]]:
        asked = self._asked
        self._senders = [_Sender(asked, opening) for opening in asked["openings"]]
        repeated = b64decode(asked["repeated"])
        once = repeated * -(-WHOLE // len(repeated))
        data = memoryview(once + once)  # each offset in the first half is followed by a whole piece
        began = time.monotonic()
        for sender in self._senders:
            self._register(sender)
        self._turn(began + asked["seconds"], data)
        self._turn(began + PATIENCE_S, data, self._achieved)
        for key in list(self._selector.get_map().values()):
            self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
        self._returns = False
        if asked["answer"]:
            self._turn(time.monotonic() + PATIENCE_S, data, lambda: all(map(self._answered, self._senders)))
        else:
            self._turn(time.monotonic() + asked["grace_s"], data)
        return [
            {"sent": sender.sent, "received": b64encode(sender.received).decode(), "ended": sender.ended}
            for sender in self._senders
        ]

    def _achieved(self) -> bool:
        """Return whether the conditions of the flood are met."""
        asked, hears = self._asked, b64decode(self._asked["hears"])
        return (
            sum(sender.ended != "open" for sender in self._senders) >= asked["ends"]
            and sum(sender.sent for sender in self._senders) >= asked["sends"]
            and all(hears in sender.received for sender in self._senders)
        )

    def _answered(self, sender: _Sender) -> bool:
        whole = sender.sent // len(b64decode(self._asked["repeated"]))
        return sender.ended != "open" or sender.received.count(b64decode(self._asked["answer"])) >= whole

    def _register(self, sender: _Sender) -> None:
        reading = selectors.EVENT_READ if self._asked["reads"] else 0
        self._selector.register(sender.socket, selectors.EVENT_WRITE | reading, sender)

    def _end(self, sender: _Sender) -> None:
        self._selector.unregister(sender.socket)
        sender.socket.close()
        if self._returns:
            self._senders.append(_Sender(self._asked, self._asked["openings"][0]))
            self._register(self._senders[-1])

    def _turn(self, until: float, data: memoryview, over: Callable[[], bool] = lambda: False) -> None:
        while self._selector.get_map() and not over() and (left_s := until - time.monotonic()) > 0:
            for key, events in self._selector.select(min(left_s, LOOK_S)):
                sender: _Sender = key.data
                if events & selectors.EVENT_READ and not sender.read():
                    self._end(sender)
                elif events & selectors.EVENT_WRITE:
                    sender.send(data)
                    if sender.refused:
                        self._selector.modify(sender.socket, selectors.EVENT_READ, sender)


if __name__ == "__main__":
    json.dump(_Generator(json.load(sys.stdin)).run(), sys.stdout)
