"""Bus messages as bytes: a kind, a keyed MAC, the message. What does not carry our MAC is not ours.

Messages of scripts (changes, typing, who is in a room) are text and carry SHA-1 over key, channel and text, which Lua
can make; those of nodes carry BLAKE2 over channel and bytes. Both are bound to their channel.
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
_BLOCK = 128  # BLAKE2's


class _NodeEnvelope(Struct, frozen=True, array_like=True):
    """What a node publishes, with the topic on node channels, which carry what is meant for users.

    What is added stands at the end and has a default: nodes of the version before read and write it without.
    """

    message: AnySent
    topic: tuple[TopicKind, str, str] | None = None
    at: int = 0  # when it was published, by the engine's time; 0: it was not looked at


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_NodeEnvelope).decode

Reader = Callable[[bytes], tuple[Topic, Message]]


class Malformed(Exception):
    """Not a message of ours."""


class BusCodec:
    """Writes and reads bus messages under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:64]  # as long as BLAKE2 takes it
        self.script_key = sha1(key).hexdigest()  # noqa: S324  (scripts have no other; the key is secret)
        self.timed: Callable[[int], None] = lambda at: None  # told of a message that says when it was published

    def write(self, channel: str, message: Message, topic: Topic | None = None, at: int = 0) -> bytes:
        if not isinstance(message, NodeMessage):
            raise TypeError(f"{type(message).__name__} is published by the engine's own scripts")
        sent = _NodeEnvelope(message, None if topic is None else (topic.kind, topic.tenant, topic.name), at)
        body = _encode(sent)
        mac = self._mac(channel)
        mac.update(body)
        return b"m" + mac.digest() + body

    def reader(self, channel: str, topic: Topic) -> Reader:
        """Reads what comes on one channel: the topic it is for, and the message. Malformed if it is not ours.

        Made once for each channel, because half of verifying a message is the same for all on a channel.
        """
        # No channel has a bar in its name: where it ends is sealed too.
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
        """The number of a beat. Malformed if it is not ours: a stranger's would hide that ours do not arrive."""
        mac = self._mac(channel)
        mac.update(data[_MAC:])
        if not compare_digest(mac.digest(), data[:_MAC]):
            raise Malformed("not signed by us")
        try:
            return int(data[_MAC:])
        except ValueError:
            raise Malformed("not a number") from None

    def _mac(self, channel: str) -> blake2b:
        # Filled up to the beginning of a block: those before are hashed once for the channel, not for each message.
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
            return Entered(user, entered == "r") if entered else Left(user)
    raise Malformed("of no kind")
