"""Decoding of commands and encoding of frames, each once per message.

A server frame is built whole here (RFC 6455 header and JSON). The same byte string can be joined with other frames and
written to any number of sockets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from greendot.errors import Refused
from greendot.protocol.codes import RETRYABLE, Err
from greendot.protocol.commands import COMMANDS, AnyCommand, Command, CommandId, RoomEdit, RoomSend, SignalSend
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, has_vast_number, is_too_deep
from greendot.protocol.events import Event
from greendot.protocol.mistakes import explained
from greendot.protocol.replies import Reply
from greendot.protocol.spelling import nearest

MAX_FRAME = 64 * 1024
ALIKE = 0.8  # see `nearest`: commands of one capability have the same first word

_decode: Callable[[str | bytes], Command] = msgspec.json.Decoder(AnyCommand).decode
_encode = msgspec.json.Encoder().encode


class _Envelope(Struct):
    """Fields read from a command that failed to decode, for the error message."""

    type: Any = None
    id: Any = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_TOO_DEEP = f"a frame may be nested at most {MAX_DEPTH} levels deep"
_WITH_BODY = (RoomSend, RoomEdit, SignalSend)  # commands whose body is forwarded unchanged
_FIELD = re.compile(r"`\$\.([^`]*)`$|missing required field `([^`]*)`")


class BadCommand(Refused):
    """Text frame that is not an executable command. `command_id` is None if no id could be read."""

    def __init__(self, code: Err, message: str, command_id: CommandId | None = None) -> None:
        super().__init__(code, message)
        self.command_id = command_id


def decode_command(text: str | bytes) -> Command:
    """Return the command in a text frame. Raise BadCommand with the reason if there is none."""
    try:
        command = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _explain(text, error) from None
    if len(text) > 2 * MAX_DEPTH and is_too_deep(text):
        raise BadCommand(Err.BAD_FIELD, _TOO_DEEP, command.id)
    if isinstance(command, _WITH_BODY) and isinstance(command.body, Raw) and has_vast_number(bytes(command.body)):
        raise BadCommand(Err.BAD_FIELD, f"field `body` of {command.__struct_config__.tag} {VAST_NUMBER}", command.id)
    return command


def _explain(text: str | bytes, error: Exception) -> BadCommand:
    if isinstance(error, RecursionError):
        return BadCommand(Err.BAD_FRAME, _TOO_DEEP)
    if not isinstance(error, msgspec.ValidationError):
        return BadCommand(Err.BAD_FRAME, "the frame is not valid JSON")
    try:
        envelope = _decode_envelope(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return BadCommand(Err.BAD_FRAME, "a frame must be one JSON object")
    command_id = envelope.id if type(envelope.id) in (str, int) else None
    if not isinstance(envelope.type, str):
        return BadCommand(Err.BAD_FRAME, "a frame needs a `type` that is a string", command_id)
    if envelope.type not in COMMANDS:
        meant = nearest(envelope.type, COMMANDS, ALIKE)
        remedy = "" if meant is None else f"; did you mean {meant!r}?"
        return BadCommand(Err.UNKNOWN_TYPE, f"unknown command {envelope.type[:64]!r}{remedy}", command_id)
    found = _FIELD.search(str(error))
    field = (found.group(1) or found.group(2)) if found else "?"
    reason = explained(error, COMMANDS[envelope.type])
    return BadCommand(Err.BAD_FIELD, f"field `{field}` of {envelope.type}: {reason}", command_id)


def encode_event(event: Event, ts: int, trace: str | None = None, traceparent: str | None = None) -> bytes:
    """Return a complete frame with `event`, which can be written to any number of sockets."""
    envelope: dict[str, object] = {"type": event.type, "v": event.v, "ts": ts, "data": event}
    if trace is not None:
        envelope["trace"] = trace
    if traceparent is not None:
        envelope["traceparent"] = traceparent
    return text_frame(_encode(envelope))


def encode_part(part: Struct) -> bytes:
    """Encode one entry of a large reply; `joined` assembles the reply."""
    return _encode(part)


def joined(field: str, parts: Iterable[bytes]) -> Raw:
    """Return the data of a reply whose one field is a list of encoded entries."""
    return Raw(b'{"%b":[%b]}' % (field.encode(), b",".join(parts)))


def encode_reply(command_id: CommandId, data: Reply | Raw) -> bytes:
    return text_frame(_encode({"type": "reply", "id": command_id, "data": data}))


def encode_error(error: Refused, command_id: CommandId | None = None) -> bytes:
    frame: dict[str, object] = {
        "type": "error",
        "id": command_id,
        "code": error.code,
        "message": error.message,
        "retry": error.code in RETRYABLE,
    }
    if error.retry_in_ms is not None:
        frame["retry_in_ms"] = error.retry_in_ms
    return text_frame(_encode(frame))


def text_frame(payload: bytes) -> bytes:
    """Return `payload` with the header of an unmasked, final RFC 6455 text frame."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload


def pong_frame(payload: bytes) -> bytes:
    """Return the answer to a ping. `payload` has at most 125 bytes, like that of every control frame."""
    return b"\x8a%c%b" % (len(payload), payload)


@lru_cache(maxsize=64)  # most connections end with one of a few codes and reasons
def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame. A reason beyond 123 bytes is cut between two characters."""
    cut = reason.encode()[:123].decode(errors="ignore").encode()
    return b"\x88%c%b%b" % (2 + len(cut), code.to_bytes(2, "big"), cut)
