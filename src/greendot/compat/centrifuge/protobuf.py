"""Centrifuge protocol in Protobuf: commands become the JSON of the same protocol, and replies in JSON become messages.

A frame has several messages, each after its length. Fields with bytes contain JSON, as rooms do. This module is
imported only if a client requests Protobuf, because the library is optional.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Raw

from greendot.compat.centrifuge.codec_model import MOST_COMMANDS, BadCommand, compact
from greendot.compat.centrifuge.codes_model import CfErr
from greendot.compat.centrifuge.dialect_model import CentrifugeDialect
from greendot.compat.centrifuge.protobuf_definitions import PACKAGE, definitions
from greendot.protocol.codec import text_frame
from greendot.protocol.decoding import decode
from greendot.protocol.versions import TEXT, Reading, split_frames

_BINARY = b"\x82"  # first byte of a complete binary frame
_pool = DescriptorPool()  # of our own: another library may have other definitions of the same names
_pool.Add(definitions())
_Command: Any = GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.Command"))
_Reply: Any = GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.Reply"))


# --- commands ---


def as_json(payload: bytes) -> str:
    """Return the commands of a binary frame as lines of JSON. Raise BadCommand if they are no commands."""
    lines: list[bytes] = []
    for message in _split(payload):
        try:
            command = _Command.FromString(message)
        except DecodeError:
            raise BadCommand(CfErr.BAD_REQUEST, "the frame has no valid Protobuf command") from None
        lines.append(msgspec.json.encode(_plain(command)))
        if len(lines) > MOST_COMMANDS:
            raise BadCommand(CfErr.BAD_REQUEST, f"a frame may have at most {MOST_COMMANDS} commands")
    return b"\n".join(lines).decode()


def _split(payload: bytes) -> Iterator[bytes]:
    """Yield the messages of a frame, each of which follows its length (a varint)."""
    at = 0
    while at < len(payload):
        size = shift = 0
        while True:
            if at >= len(payload) or shift > 28:
                raise BadCommand(CfErr.BAD_REQUEST, "the frame has a message with a wrong length")
            byte = payload[at]
            at, size, shift = at + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        if at + size > len(payload):
            raise BadCommand(CfErr.BAD_REQUEST, "the frame has a message with a wrong length")
        yield payload[at : at + size]
        at += size


def _plain(message: Message) -> dict[str, Any]:
    """Return the fields of a message. Lists and maps are left out, because no command of a client has them."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if isinstance(value, Message):
            found[field.name] = _plain(value)
        elif isinstance(value, bytes):
            found[field.name] = _json_in(field.name, value)
        elif isinstance(value, str | int | bool):
            found[field.name] = value
    return found


def _json_in(name: str, value: bytes) -> Raw:
    try:
        decode(value.decode(), object)
    except (UnicodeDecodeError, msgspec.DecodeError):
        raise BadCommand(CfErr.BAD_REQUEST, f"field `{name}` must be JSON, as rooms have it") from None
    return compact(value)


# --- replies and pushes ---


def as_message(text: bytes) -> bytes:
    """Return a reply or push in JSON as a binary frame with one message."""
    reply = _Reply()
    _fill(reply, Raw(text))
    data = reply.SerializeToString()
    return _BINARY + text_frame(_length(len(data)) + data)[1:]


def _length(size: int) -> bytes:
    made = bytearray()
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*made, size])


def _fill(message: Message, text: Raw) -> None:
    for name, value in decode(text, dict[str, Raw]).items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, name, bytes(value))
        elif field.type != FieldDescriptor.TYPE_MESSAGE:
            setattr(message, name, decode(value, object))
        elif field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, name), field, value)
        elif bytes(value).startswith(b"["):
            for item in decode(value, list[Raw]):
                _fill(getattr(message, name).add(), item)
        else:
            part = getattr(message, name)
            part.SetInParent()  # also if it is empty
            _fill(part, value)


def _fill_map(container: Any, field: FieldDescriptor, text: Raw) -> None:
    of_messages = field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE
    for key, value in decode(text, dict[str, Raw]).items():
        if of_messages:
            _fill(container[key], value)
        else:
            container[key] = decode(value, object)


class ProtobufDialect(CentrifugeDialect):
    """Conversion for clients of a tenant that read Protobuf."""

    __slots__ = ()

    def _put(self, frames: bytes) -> Reading:
        made = super()._put(frames).frames
        return Reading(
            b"".join([as_message(frame[at:]) if frame[0] == TEXT else frame for frame, at in split_frames(made)])
        )
