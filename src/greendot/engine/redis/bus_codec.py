"""Encoding of bus messages: a kind, a keyed MAC, the message. Messages without a valid MAC are ignored.

Messages of scripts (changes, typing, occupancy) are text and carry SHA-1 over key, channel and text, which Lua can
compute. Messages of nodes carry BLAKE2 over channel and bytes. Both are bound to their channel.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b, sha1
from hmac import compare_digest

import msgspec
from msgspec import Struct

from greendot.engine.messages import AnySent, Entered, Left, Message, NodeMessage, Topic, TopicKind, Typing
from greendot.engine.redis.record_codec import read_change, unescape

_MAC = 16
_BLOCK = 128  # block size of BLAKE2


class _NodeEnvelope(Struct, frozen=True, array_like=True):
    """Message of a node. On node channels, which also carry messages to users, it includes the topic.

    Add fields at the end and with a default: nodes of the previous version read and write the struct without them.
    """

    message: AnySent
    topic: tuple[TopicKind, str, str] | None = None
    at: int = 0  # engine's time of publishing; 0: not measured


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_NodeEnvelope).decode

Reader = Callable[[bytes], tuple[Topic, Message]]


class Malformed(Exception):
    """Message that Greendot did not sign, or cannot decode."""


class BusCodec:
    """Encoder and decoder of bus messages under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:64]  # maximum key length of BLAKE2
        self.script_key = sha1(key).hexdigest()  # noqa: S324  (scripts have no other; the key is secret)
        self.timed: Callable[[int], None] = lambda at: None  # called with a message's time of publishing

    def write(self, channel: str, message: Message, topic: Topic | None = None, at: int = 0) -> bytes:
        if not isinstance(message, NodeMessage):
            raise TypeError(f"{type(message).__name__} is published by the engine's own scripts")
        sent = _NodeEnvelope(message, None if topic is None else (topic.kind, topic.tenant, topic.name), at)
        body = _encode(sent)
        mac = self._mac(channel)
        mac.update(body)
        return b"m" + mac.digest() + body

    def reader(self, channel: str, topic: Topic) -> Reader:
        """Return a reader of one channel, which returns the topic and the message or raises Malformed.

        Make one reader per channel: half of the work of verifying a message is the same for all messages of a channel.
        """
        # No channel name contains a bar, so the MAC also covers where the name ends.
        mac, text_mac = self._mac(channel), sha1(f"{self.script_key}{channel}|".encode())  # noqa: S324  (as above)

        def read(data: bytes) -> tuple[Topic, Message]:
            try:
                if data[:1] != b"m":
                    return topic, _script_message(text_mac.copy(), data)
                seal, body = mac.copy(), data[17:]
                seal.update(body)
                if not compare_digest(seal.digest(), data[1:17]):
                    raise Malformed("not signed by us")
                sent = _decode(body)
                if sent.at:
                    self.timed(sent.at)
                return topic if sent.topic is None else Topic(*sent.topic), sent.message
            except (msgspec.MsgspecError, ValueError, IndexError, KeyError, RecursionError) as error:
                raise Malformed(str(error)) from None

        return read

    def write_beat(self, channel: str, number: int) -> bytes:
        body = str(number).encode()
        mac = self._mac(channel)
        mac.update(body)
        return mac.digest() + body

    def read_beat(self, channel: str, data: bytes) -> int:
        """Return the number of a beat.

        Raise Malformed without a valid MAC: a forged beat would hide that real ones do not arrive.
        """
        mac = self._mac(channel)
        mac.update(data[_MAC:])
        if not compare_digest(mac.digest(), data[:_MAC]):
            raise Malformed("not signed by us")
        try:
            return int(data[_MAC:])
        except ValueError:
            raise Malformed("not a number") from None

    def _mac(self, channel: str) -> blake2b:
        # Padded to a block boundary: the blocks of the name are hashed once per channel, not for each message.
        name = channel.encode()
        return blake2b(name.ljust(len(name) // _BLOCK * _BLOCK + _BLOCK + 1, b"\0"), digest_size=_MAC, key=self._key)


def _script_message(mac: object, data: bytes) -> Message:
    body = data[41:]
    mac.update(body)  # type: ignore[attr-defined]
    if not compare_digest(mac.hexdigest().encode(), data[1:41]):  # type: ignore[attr-defined]
        raise Malformed("not signed by us")
    text = body.decode()
    match data[:1]:
        case b"c":
            return read_change(text)
        case b"t":
            user, name, held = text.split("|")
            return Typing(user, unescape(name), int(held))
        case b"p":
            user, entered = text.split("|")
            # A mode, and the name. Nodes of the version before compare the whole text with the mode "r".
            return Entered(user, entered == "r", unescape(entered[1:])) if entered else Left(user)
    raise Malformed("of no kind")
