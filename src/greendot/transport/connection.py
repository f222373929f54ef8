"""Socket of one client: its output, its end, the time of its last frame.

Output is written once in a turn, which is one pass of the event loop. `send` collects frames, and the hub calls
`flush`. While the kernel takes all output, no frame waits. Otherwise frames wait in a `SendBuffer`, which is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from greendot.limits.frame_limit_model import CommandLimit
from greendot.node.timer_model import Timer
from greendot.presence.grace_model import EndCause
from greendot.protocol.codec import close_frame, pong_frame
from greendot.protocol.codes import Close
from greendot.protocol.versions import Dialect
from greendot.transport.send_buffer_model import BufferedFrame, SendBuffer
from greendot.transport.websocket import Framing, write_now

Item = tuple[bytes, bool, object] | tuple[bytes, bool, object, *tuple[object, ...]]  # frame, is a record, key, …
AnyItem = TypeVar("AnyItem", bound=Item)
RESUMED = 64 * 1024  # bytes per write to a socket that takes output again
CLOSE_WAIT_S = 2.0  # for the peer to read the remaining output and answer the close frame


C_contra = TypeVar("C_contra", bound="SocketConnection", contravariant=True)


class Owner(Protocol[C_contra]):
    """Node that a connection belongs to."""

    waiting: set[Any]  # connections with frames in a send buffer

    def now(self) -> float: ...
    def set_timer(self, delay_s: float, call: Any, argument: Any) -> Timer: ...
    def cancel_timer(self, timer: Timer | None) -> None: ...
    def has_output(self, connection: C_contra) -> None: ...
    def opened(self, connection: C_contra) -> None: ...
    def received(self, connection: C_contra, text: str) -> None: ...
    def counted(self, connection: C_contra) -> bool: ...
    def violated(self, connection: C_contra, code: int, reason: str) -> None: ...
    def unread(self, connection: C_contra, types: tuple[str, ...]) -> None: ...
    def ended(self, connection: C_contra, cause: EndCause, code: int) -> None: ...
    def gone(self, connection: C_contra) -> None: ...
    def slow(self, connection: C_contra) -> None: ...
    def count_dropped(self, frame: bytes) -> None: ...
    def count_coalesced(self, frame: bytes) -> None: ...
    def count_send_failed(self) -> None: ...


class Violation(NamedTuple):
    """End of a connection whose peer broke the protocol.

    The connection is closed after the messages that came before the violation are handled.
    """

    code: int
    reason: str


class SocketConnection(Framing):
    """Output, limits and the end of one upgraded socket. `node.session.Connection` adds the node's state.

    At the end, a connection calls two methods of its owner, each once: `ended` when nothing more will be written, then
    `gone` when the socket is closed.
    """

    __slots__ = (
        "_bye",
        "_ended",
        "_hold",
        "_out",
        "_outbox",
        "_owner",
        "dialect",
        "direct",
        "limit",
        "opened_at",
        "received_at",
        "timer",
    )

    def __init__(self, owner: Owner[Any]) -> None:
        super().__init__()
        self._owner = owner
        self.dialect: Dialect | None = None  # set by hello for a client that reads older versions of events
        self.opened_at = self.received_at = owner.now()  # monotonic seconds
        self.timer: Timer | None = None  # the connection's only timer: hello, heartbeat, idle, token
        self.limit: CommandLimit | None = None
        # `fd` while the hub may write to the socket itself, because no frame waits, and frames need no conversion, or
        # one that all clients of the dialect share; else -1.
        self.direct = -1
        self._out: list[BufferedFrame] | None = None  # frames that `send` collected in this turn
        self._hold: SendBuffer | None = None  # during hello: missed records are sent before live frames
        self._outbox: SendBuffer | None = None  # frames that wait while the kernel does not take all output
        self._bye = False
        self._ended = False

    # --- from the transport ---

    def on_connected(self) -> None:
        # The transport's own buffer has no bound. With high=0, the transport calls `resume_writing` only when this
        # buffer is empty. Until then, output waits in the send buffer, which is bounded.
        self.socket.set_write_buffer_limits(high=0)
        self.direct = self.fd
        self._owner.opened(self)

    def on_disconnected(self) -> None:
        # Forget the descriptor first: from now on the kernel may give the descriptor to another socket.
        self.fd = self.direct = -1
        self._end(EndCause.LOST, 0)
        self._owner.gone(self)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        if self.closing or self._outbox is None:
            return
        # Over TLS, write one frame at a time: a frame that was given to TLS can no longer be dropped or replaced.
        while items := self._outbox.take(RESUMED if self.fd >= 0 else 1):
            if not self._push(items):
                return
        self._outbox = None
        self._owner.waiting.discard(self)
        if self._out is None:
            self._keeps_up()

    def on_text(self, text: str) -> None:
        self._owner.received(self, text)

    def on_received(self) -> None:
        self.received_at = self._owner.now()

    def on_counted(self) -> bool:
        return self._owner.counted(self)

    def on_ping(self, payload: bytes) -> None:
        # The answer to the last ping is enough (RFC 6455 5.5.3), so a flood of pings cannot fill the buffer.
        self.send(pong_frame(payload), record=False, key="pong")

    def on_violation(self, code: int, reason: str) -> None:
        self._owner.violated(self, code, reason)

    def on_client_close(self, code: int) -> None:
        self.flush()  # answers to commands that came in the same packet
        write_now(self.socket, self.fd, close_frame(code or Close.NORMAL))
        self.socket.close()
        self._end(EndCause.CLIENT_CLOSE, code)
        self._await_end()  # a peer that does not read would keep the remaining output, and the socket, for ever

    def on_eof(self) -> None:
        if not self.closing:  # else the end is awaited already
            self._end(EndCause.LOST, 0)
            self._await_end()

    def wire_code(self, code: int) -> int:
        """Return the close code that the client gets. A foreign protocol has codes of its own."""
        return code

    # --- output ---

    def send(self, frame: bytes, *, record: bool = True, key: object = None) -> None:
        """Collect a frame for the write at the end of this turn.

        While a hello is under way or the socket is behind, the frame waits in a send buffer. A record waits in order; a
        signal replaces an earlier signal with the same `key`.
        """
        if self.closing:
            return
        if self.dialect is not None and not (frame := self._translated(self.dialect, frame)):
            return
        if self._hold is not None:
            self._queue(self._hold, frame, record, key)
        elif self._outbox is not None:
            self._queue(self._outbox, frame, record, key)
        elif self._out is None:
            self._out = [BufferedFrame(frame, True, key)]
            self.direct = -1
            self._owner.has_output(self)
        else:
            self._out.append(BufferedFrame(frame, True, key))

    def flush(self) -> None:
        """Write the frames that `send` collected."""
        if self._out is None or self.closing:
            return
        collected, self._out = self._out, None
        if self._outbox is not None:  # a write of the hub stalled after these frames were collected
            for item in collected:
                self._outbox.keep(item.frame, item.key)
            return
        data = collected[0].frame if len(collected) == 1 else b"".join([item.frame for item in collected])
        if self.fd < 0:
            self.socket.write(data)
            self._behind()
            return
        try:
            sent = os.write(self.fd, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.failed()
            return
        if sent != len(data):
            self._stalled(self._begin(collected, sent), collected=True)
        else:
            self._keeps_up()

    def _keeps_up(self) -> None:
        """Allow direct writes, because no frame waits. A hello, or the conversion of frames, still prevents them."""
        if self._hold is None and (self.dialect is None or self.dialect.straight):
            self.direct = self.fd

    def _translated(self, dialect: Dialect, frames: bytes) -> bytes:
        reading = dialect.read(frames)
        if reading.unread:
            self._owner.unread(self, reading.unread)
        return reading.frames

    def hold(self) -> None:
        """Queue all output until `release`: missed records must reach the client before live frames."""
        self.flush()
        self._hold, self.direct = SendBuffer(), -1
        self._owner.waiting.add(self)

    def release(self, first: Iterable[tuple[bytes, object]]) -> None:
        """Send the frames in `first`, each given with its key; then send the frames that waited since `hold`."""
        hold, self._hold = self._hold, None
        if self._outbox is None:
            self._owner.waiting.discard(self)
        for frame, key in first:
            self.send(frame, key=key)
        while hold is not None and (held := hold.take()):
            for item in held:
                self.send(item.frame, key=item.key)

    def stall(self, items: Sequence[Item], sent: int) -> None:
        """Queue items (records or signals) after a direct write, of which the kernel took only `sent` bytes."""
        self._stalled(self._begin(items, sent))

    def _begin(self, items: Sequence[AnyItem], sent: int) -> Sequence[AnyItem]:
        """Write the rest of the first unsent frame to the transport; return the frames behind it.

        The transport calls `resume_writing` when the socket takes more. The first frame can no longer be dropped or
        replaced. The returned frames can.
        """
        for number, (frame, *_) in enumerate(items):
            if sent < len(frame):
                self.socket.write(frame[sent:])
                return items[number + 1 :]
            sent -= len(frame)
        return ()

    def _stalled(self, items: Sequence[Item], *, collected: bool = False) -> None:
        """Queue unsent items.

        Items that `send` collected were accepted before, so the limit of the send buffer refuses none of them. But
        their bytes count towards the limit when a later frame is queued.
        """
        self.direct = -1
        outbox = self._outbox = self._outbox or self._slow_down()
        for frame, record, key, *_ in items:
            if collected:
                outbox.keep(frame, key)
            elif not self.closing:
                self._queue(outbox, frame, record, key)
        if not self.closing and not self._behind():
            self.resume_writing()

    def _push(self, items: list[BufferedFrame]) -> bool:
        """Write items taken from the send buffer; put back what the socket did not take.

        Return whether the socket may take more.
        """
        assert self._outbox is not None
        data = b"".join([item.frame for item in items])
        sent = 0
        if self.fd >= 0:
            try:
                sent = os.write(self.fd, data)
            except BlockingIOError:
                pass
            except OSError:
                self.failed()
                return False
        if sent != len(data):
            self._outbox.put_back(self._begin(items, sent))
            return not self._behind()
        return True

    @property
    def behind(self) -> bool:
        """Return whether frames wait for a slow socket or a hello. The hub must then pass each new frame to `send`."""
        return self._outbox is not None or self._hold is not None

    def waits(self) -> SendBuffer | None:
        """Return the send buffer of a slow socket; None while the socket keeps up."""
        return self._outbox

    @property
    def unsent(self) -> int:
        """Return the bytes that wait for a slow socket; 0 while the socket keeps up."""
        outbox = self._outbox
        if outbox is None:
            return 0
        return outbox.record_bytes + outbox.signal_bytes + self.socket.get_write_buffer_size()

    def drop(self, of: Callable[[object], bool]) -> list[object]:
        """Drop waiting frames whose key matches `of`, because the client may no longer see them; return their keys."""
        dropped: list[object] = []
        if self._out is not None:
            dropped += [item.key for item in self._out if of(item.key)]
            self._out = [item for item in self._out if not of(item.key)]
        for waiting in (self._hold, self._outbox):
            if waiting is not None:
                dropped += waiting.drop(of)
        return dropped

    def _behind(self) -> bool:
        if self.socket.get_write_buffer_size() == 0:
            return False
        if self._outbox is None:
            self._outbox = self._slow_down()
        self.direct = -1
        return True

    def _slow_down(self) -> SendBuffer:
        self._owner.waiting.add(self)
        return SendBuffer()

    def _queue(self, outbox: SendBuffer, frame: bytes, record: bool, key: object) -> None:
        if not record:
            if (replaced := outbox.signal(key)) is not None:
                self._owner.count_coalesced(replaced)
            if not outbox.offer_signal(frame, key):
                self._owner.count_dropped(frame)
        elif not outbox.offer_record(frame, key):
            self.close(Close.TOO_SLOW, "the client reads too slowly; reconnect and recover")
        if outbox.pressed and not outbox.warned:
            outbox.warned = True
            self._owner.slow(self)

    def failed(self) -> None:
        """Count a failed write and abort the broken socket."""
        self._owner.count_send_failed()
        self.fd = self.direct = -1
        self.socket.abort()

    # --- closing ---

    def bye_received(self) -> None:
        """Close without a grace, because the client has announced that it will not return."""
        self._bye = True
        self.close(Close.NORMAL, "bye")

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        """Write collected frames and a close frame; end at the peer's answer, or after CLOSE_WAIT_S without an answer.

        `last` is an event that explains the close. A slow client gets `last`, too, but the frames in its send buffer
        are dropped.
        """
        if self.closing:
            return
        self.flush()
        end = close_frame(self.wire_code(code), reason)
        if last is not None and self.dialect is not None:
            last = self._translated(self.dialect, last)
        write_now(self.socket, self.fd, end if last is None else last + end)
        violation = self.deaf
        self._end(EndCause.BYE if self._bye else EndCause.SERVER_CLOSE, code)
        self._await_end()
        if violation:
            self.linger()

    def revoke(self, reason: str) -> None:
        """Close without writing collected or waiting frames: the client may no longer receive them."""
        if self.closing:
            return
        self._out = None
        secure, waits = self.fd < 0, self.socket.get_write_buffer_size() > 0
        self.close(Close.REVOKED, reason)
        if secure and waits:
            self.abort()  # TLS has whole frames already, which would be sent first

    def _await_end(self) -> None:
        if self.timer is not None:
            self._owner.cancel_timer(self.timer)
        self.timer = self._owner.set_timer(CLOSE_WAIT_S, SocketConnection.abort, self)

    def abort(self) -> None:
        """Close the socket at once and drop everything that waits."""
        self.fd = self.direct = -1
        self.socket.abort()

    def _end(self, cause: EndCause, code: int) -> None:
        if self._ended:
            return
        self._ended = self.closing = self.deaf = True
        self.fd = self.direct = -1
        self._outbox = self._hold = self._out = None
        self._owner.waiting.discard(self)
        self._owner.ended(self, cause, code)
