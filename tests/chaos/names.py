"""Name server of a run, which can become silent or answer with errors."""

from __future__ import annotations

import asyncio
import struct

ADDRESS, PORT = "127.0.0.1", 53
SUFFIX = b"chaos"  # names end with this label
NAME_ERROR, SERVER_FAILURE = 3, 2


class NameServer(asyncio.DatagramProtocol):
    """Server that resolves every name of the run to 127.0.0.1, in each mode: `answer`, `silent`, `fail`, `unknown`."""

    def __init__(self) -> None:
        self.mode = "answer"
        self.asked = 0
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(ADDRESS, PORT))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        if self.mode != "silent" and self._transport is not None and len(data) > 12:
            self._transport.sendto(answer(data, self.mode), addr)


def answer(query: bytes, mode: str) -> bytes:
    """Return the answer to a query in a mode."""
    labels, end = _question(query)
    question = query[12:end]
    (kind,) = struct.unpack(">H", question[-4:-2])
    code = {"fail": SERVER_FAILURE, "unknown": NAME_ERROR}.get(mode, 0)
    if code == 0 and (not labels or labels[-1] != SUFFIX):
        code = NAME_ERROR
    records = b""
    if code == 0 and kind == 1:  # an address of IPv4; other kinds have no records
        records = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + bytes([127, 0, 0, 1])
    head = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, bool(records), 0, 0)
    return head + question + records


def _question(query: bytes) -> tuple[list[bytes], int]:
    """Return the labels of the first question, and where the question ends."""
    labels, at = [], 12
    while at < len(query) and (size := query[at]):
        labels.append(query[at + 1 : at + 1 + size].lower())
        at += 1 + size
    return labels, at + 5
