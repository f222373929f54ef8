"""Small HTTP/2 server for tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from fake_providers.requests import Answer, Asked

if TYPE_CHECKING:
    from fake_providers.server import Played

DRIP_S = 0.05
STREAMS = 100
FRAME = 16_000  # bytes; answers are shorter than a window


class Http2(asyncio.Protocol):
    """One connection."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._state = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._open: dict[int, tuple[dict[str, str], bytearray]] = {}
        self._drips: list[asyncio.TimerHandle] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._played.connections.add(self)
        self._played.connected += 1
        allowed = {SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS}
        self._state.local_settings = Settings(client=False, initial_values=allowed)
        self._state.initiate_connection()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._played.connections.discard(self)
        for drip in self._drips:
            drip.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            events = self._state.receive_data(data)
        except ProtocolError:
            self._flush()
            self.transport.close()
            return
        for event in events:
            match event:
                case RequestReceived():
                    self._open[event.stream_id] = dict(event.headers), bytearray()
                case DataReceived():
                    self._open[event.stream_id][1].extend(event.data)
                    self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded():
                    self._asked(event.stream_id)
        self._flush()

    def cut(self) -> None:
        self.transport.abort()

    def _asked(self, stream: int) -> None:
        headers, body = self._open.pop(stream)
        assert headers[":method"] == "POST", headers
        assert headers[":scheme"] == "https", headers
        match self._played.does(Asked(headers[":path"], headers, bytes(body))):
            case "hang":
                return
            case "reset" | "lost":
                self.cut()
            case "goaway":
                self._state.close_connection()
                self._flush()
                self.transport.close()
            case "slow":
                self._state.send_headers(stream, [(":status", "200")])
                self._again(stream)
            case Answer() as answer:
                self._answer(stream, answer)

    def _answer(self, stream: int, answer: Answer) -> None:
        self._state.send_headers(stream, [(":status", str(answer.status)), *(answer.headers or {}).items()])
        for start in range(0, len(answer.body), FRAME):
            self._state.send_data(stream, answer.body[start : start + FRAME])
        self._state.end_stream(stream)

    def _again(self, stream: int) -> None:
        try:
            self._state.send_data(stream, b" ")
        except ProtocolError:
            return  # the client has reset the stream
        self._flush()
        self._drips.append(asyncio.get_running_loop().call_later(DRIP_S, self._again, stream))

    def _flush(self) -> None:
        self.transport.write(self._state.data_to_send())
