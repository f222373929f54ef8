"""The program that `flood` runs: read a `Flood` as JSON from standard input, print an `Outcome` for each connection.

It loads the standard library only: to start it takes little of the time of what is measured beside it.
"""

import json
import selectors
import socket
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

WHOLE = 256 * 1024  # bytes offered to a socket at a time, unless told
KEPT = 64 * 1024  # bytes kept of what a connection received last
LOOK_S = 0.05  # at least so often it is looked at whether a flood is over
PATIENCE_S = 30.0  # for what a flood is to achieve, and for the answers to an opening


class _Sender:
    """One connection."""

    def __init__(self, asked: dict[str, Any], opening: list[dict[str, str]]) -> None:
        self.sent = 0  # bytes of the flood
        self.received = b""  # since the flood began: the last of it
        self.ended = "open"
        self._piece: int = asked["piece"]
        self.socket = socket.create_connection(("127.0.0.1", asked["port"]), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # pieces are packets
        self.refused = False  # the server takes no more; what it has sent may still be read
        for step in opening:
            self.socket.sendall(b64decode(step["send"]))
            wanted, answer = b64decode(step["answer"]), b""
            while wanted not in answer:
                more = self.socket.recv(65536)
                assert more, f"no {wanted!r} in {answer!r}"
                answer += more
        self.socket.setblocking(False)

    def send(self, data: memoryview) -> None:
        """Offer more of the flood, from where the socket stopped taking it."""
        try:
            for _ in range(1 if self._piece == WHOLE else 256):
                at = self.sent % (len(data) // 2)
                self.sent += self.socket.send(data[at : at + self._piece])
        except BlockingIOError:
            pass
        except ConnectionError:
            self.refused = True

    def read(self) -> bool:
        """Read what is there; False at the end."""
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
        data = memoryview(once + once)  # from anywhere in the first half there is a whole piece
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
        """Whether the flood went as far as was asked for."""
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
