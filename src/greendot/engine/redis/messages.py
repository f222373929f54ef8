"""Bus messages as bytes: a kind, a keyed MAC, the message. What does not carry our MAC is not ours.

Messages of scripts (changes, typing) are text and carry SHA-1 over key, channel and text, which Lua can make; those of
nodes carry BLAKE2 over channel and bytes. Both are bound to their channel.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b, sha1

import msgspec
from msgspec import Struct

from greendot.engine.base import Deliver, Disconnect, MemberRemoved, Message, Topic, Typing
from greendot.engine.redis.pack import read_change, unescape

_MAC = 16


class _Sent(Struct, frozen=True, array_like=True):
    """What a node publishes. `topic` is there on node channels, which carry what is meant for users."""

    topic: tuple[str, str, str] | None
    deliver: Deliver | None = None
    removed: MemberRemoved | None = None
    disconnect: Disconnect | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Sent).decode


class Malformed(Exception):
    """Not a message of ours."""


class Messages:
    """Writes and reads bus messages under one key."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.script_key = sha1(key).hexdigest()

    def write(self, channel: str, message: Message, topic: Topic | None = None) -> bytes:
        named = None if topic is None else (topic.kind, topic.tenant, topic.name)
        match message:
            case Deliver():
                sent = _Sent(named, deliver=message)
            case MemberRemoved():
                sent = _Sent(named, removed=message)
            case Disconnect():
                sent = _Sent(named, disconnect=message)
            case _:
                raise TypeError(f"{type(message).__name__} is published by the engine's own scripts")
        body = _encode(sent)
        return b"m" + self._mac(channel, body) + body

    def read(self, channel: str, data: bytes) -> tuple[Topic | None, Message]:
        """The message, and the topic where the channel alone does not tell it. Malformed if it is not ours."""
        try:
            if data[:1] == b"m":
                return self._read_sent(channel, data)
            return None, self._read_told(channel, data)
        except (msgspec.MsgspecError, ValueError, IndexError, KeyError) as error:
            raise Malformed(str(error)) from None

    def _read_sent(self, channel: str, data: bytes) -> tuple[Topic | None, Message]:
        mac, body = data[1 : 1 + _MAC], data[1 + _MAC :]
        if not hmac.compare_digest(mac, self._mac(channel, body)):
            raise Malformed("not signed by us")
        sent = _decode(body)
        topic = None if sent.topic is None else Topic(*sent.topic)  # type: ignore[arg-type]
        message = sent.deliver or sent.removed or sent.disconnect
        if message is None:
            raise Malformed("empty")
        return topic, message

    def _read_told(self, channel: str, data: bytes) -> Message:
        mac, body = data[1:41], data[41:]
        if not hmac.compare_digest(mac, sha1(f"{self.script_key}{channel}".encode() + body).hexdigest().encode()):
            raise Malformed("not signed by us")
        text = body.decode()
        if data[:1] == b"c":
            return read_change(text)
        user, name, held = text.split("|")
        return Typing(user, unescape(name), int(held))

    def _mac(self, channel: str, body: bytes) -> bytes:
        return blake2b(channel.encode() + b"\0" + body, digest_size=_MAC, key=self.key).digest()
