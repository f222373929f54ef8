"""Kept inputs of the fuzz targets: one file per target, one literal of bytes per line (tests/fuzz/corpus)."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from greendot.protocol.commands import COMMANDS

FOLDER = Path(__file__).parent / "corpus"
MOST_BYTES = 2_048  # of an input that is kept
WORDS = sorted(
    {
        *(f'"{name}"' for name in COMMANDS),
        *(f'"{field.encode_name}":' for kind in COMMANDS.values() for field in msgspec.structs.fields(kind)),
        *("Sec-WebSocket-Key: ", "Sec-WebSocket-Version: 13", "Transfer-Encoding: chunked", "Content-Length: "),
        *("Connection: upgrade", "Expect: 100-continue", "/v1/connect", "/livez", "HTTP/1.1", "\r\n\r\n", "0\r\n\r\n"),
    }
)  # texts that a mutation inserts


def kept(target: str) -> list[bytes]:
    """Return the kept inputs of a target."""
    return [ast.literal_eval(line) for line in (FOLDER / f"{target}.txt").read_text().splitlines()]


def keep(target: str, inputs: set[bytes]) -> None:
    """Write the inputs of a target, shortest first."""
    chosen = sorted((one for one in inputs if len(one) <= MOST_BYTES), key=lambda one: (len(one), one))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{target}.txt").write_text("".join(f"{one!r}\n" for one in chosen))


def mutated(inputs: list[bytes], seed: int) -> Iterator[bytes]:
    """Yield inputs that differ a little from the given ones, without end and the same for each seed."""
    chance = random.Random(seed)
    while True:
        data = bytearray(chance.choice(inputs))
        for _ in range(chance.randint(1, 4)):
            at = chance.randint(0, len(data))
            match chance.randrange(5):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del data[at : at + chance.randint(1, 8)]
                case 2:
                    data[at:at] = chance.choice(WORDS).encode()
                case 3:
                    other = chance.choice(inputs)
                    data[at:] = other[chance.randint(0, len(other)) :]
                case _:
                    data[at : at + 1] = bytes([1 << chance.randrange(8) ^ (data[at] if at < len(data) else 0)])
        yield bytes(data)
