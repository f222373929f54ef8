"""Cost and gain of permessage-deflate (RFC 7692) for Greendot's frames: python bench/compression.py

For each choice of parameters it prints the memory of a connection's compressor and decompressor, the bytes saved on
typical frames, and the processor time of a frame. docs/adr/0076 has the results and the decision.
"""

from __future__ import annotations

import multiprocessing
import random
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from msgspec import Raw

from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event, HeartbeatAck, InboxBadge, NotificationCreated, RoomMessage, TypingStarted
from greendot.protocol.versions import split_frames

CONNECTIONS = 500  # contexts whose memory is measured together
FRAMES = 5_000
PEOPLE = 40
NOW = 1_800_000_000_000
TAIL = b"\x00\x00\xff\xff"  # removed from each message (RFC 7692, 7.2.1)
WORDS = Path(__file__).read_text().split()


class Parameters(NamedTuple):
    """Choice of an extension offer."""

    name: str
    window_bits: int
    memory_level: int
    takeover: bool  # whether a message may refer to earlier ones


CHOICES = (
    Parameters("window 32 KiB, context kept (the default of the RFC)", 15, 8, True),
    Parameters("window 4 KiB, context kept", 12, 5, True),
    Parameters("window 1 KiB, context kept", 10, 2, True),
    Parameters("window 32 KiB, no context", 15, 8, False),
)


def frames(kind: str, chance: random.Random) -> list[bytes]:
    """Return payloads of one type, as a member of a room receives them."""
    made = [encode_event(event(kind, number, chance), NOW + 137 * number) for number in range(FRAMES)]
    return [frame[at:] for data in made for frame, at in split_frames(data)]


def event(kind: str, number: int, chance: random.Random) -> Event:
    user = f"user-{chance.randrange(PEOPLE)}"
    text = " ".join(chance.choice(WORDS) for _ in range(chance.randint(3, 16)))
    body = Raw(b'{"text":"%b"}' % text.replace("\\", "").replace('"', "").encode())
    now = NOW + 137 * number
    match kind:
        case "room.message":
            name = f"{number}-{chance.randbytes(6).hex()}"
            return RoomMessage("lobby", number, name, user, user.capitalize(), body, now)
        case "typing.started":
            return TypingStarted("lobby", user, user.capitalize(), 5_000)
        case "notification.created":
            return NotificationCreated(number, f"{number}-{chance.randbytes(6).hex()}", "mention", body, now)
        case "inbox.badge":
            return InboxBadge(number % 30, number % 7)
    return HeartbeatAck()


def compressor(of: Parameters) -> zlib._Compress:
    return zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -of.window_bits, of.memory_level)


def compressed(of: Parameters, payloads: list[bytes]) -> tuple[int, float]:
    """Return the compressed bytes of all payloads and the seconds per payload."""
    size, context = 0, compressor(of)
    begun = time.process_time()
    for payload in payloads:
        if not of.takeover:
            context = compressor(of)
        data = context.compress(payload) + context.flush(zlib.Z_SYNC_FLUSH)
        size += min(len(data) - len(TAIL), len(payload))  # a message that grows is sent as it is
    return size, (time.process_time() - begun) / len(payloads)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def memory(of: Parameters, answer: multiprocessing.SimpleQueue[float]) -> None:
    """Put the resident bytes of one connection's contexts, after enough messages to fill the window."""
    payloads = frames("room.message", random.Random(1))[:300]
    before, kept = resident(), []
    for _ in range(CONNECTIONS):
        down, up = compressor(of), zlib.decompressobj(-of.window_bits)
        for payload in payloads:
            up.decompress(down.compress(payload) + down.flush(zlib.Z_SYNC_FLUSH))
        kept.append((down, up))
    answer.put((resident() - before) / len(kept))


def measured_memory(of: Parameters) -> float:
    """Return the bytes per connection, measured in a process of its own: freed memory must not be used again."""
    answer: multiprocessing.SimpleQueue[float] = multiprocessing.SimpleQueue()
    process = multiprocessing.Process(target=memory, args=(of, answer))
    process.start()
    found = answer.get()
    process.join()
    return found


def main() -> None:
    kinds = ("room.message", "typing.started", "notification.created", "inbox.badge", "heartbeat.ack")
    payloads = {kind: frames(kind, random.Random(7)) for kind in kinds}
    print("mean payload in bytes:", {kind: sum(map(len, all)) // FRAMES for kind, all in payloads.items()})
    for of in CHOICES:
        kept = measured_memory(of) / 1024 if of.takeover else 0.0
        print(f"\n{of.name}\n  memory per connection: {kept:.0f} KiB")
        for kind, all in payloads.items():
            size, seconds = compressed(of, all)
            saved = 1 - size / sum(map(len, all))
            print(f"  {kind:22} {saved:4.0%} saved, {seconds * 1e6:5.1f} µs per frame")


if __name__ == "__main__":
    main()
