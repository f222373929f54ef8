"""Supervisor of `greendot serve --workers N`: several processes on one port, and a parent that keeps them running.

The parent serves no client. It has no event loop and no threads, so it may fork at any time. Two kinds of pipes connect
the parent with its workers:

- Each worker has a status pipe. On this pipe the worker reports that it is ready, or why it failed.
- All workers share the lifeline, a pipe without data. The lifeline closes when the parent ends, even if the parent was
  killed. The workers then stop.

SIGTERM also stops a worker, whether the parent or another process sends the signal.
"""

from __future__ import annotations

import gc
import math
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from greendot.errors import ConfigError, GreendotError
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.listener import bind

FIRST_PAUSE_S = 0.1  # pause before the second restart in a row; the first restart has no pause
LONGEST_PAUSE_S = 5.0
LONG_LIFE_S = 10.0  # if a worker lived longer than this, it is restarted without a pause

# Main function of a worker. Its arguments are the worker's number, and a function to call when the worker is ready. The
# main function returns after SIGTERM.
Work = Callable[[int, Callable[[], None]], None]

_READY = b"\0"  # a worker writes this byte first, when it is ready; all other bytes are the reason why it ends
_MOST_OUTPUT = 4096  # bytes of one read; a write of at most this size (PIPE_BUF) is never split
_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGCHLD)


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that reserves the port for the workers. With port 0, reserve any free port.

    Raise ConfigError if the port is in use.
    """
    if port:
        # Several sockets can share a port. Without this test, two Greendot servers could start on the same port.
        bind(host, port).close()
    return bind(host, port, shared=True)


class RestartBackoff:
    """Pause before a worker is restarted: none at first, then longer each time, as long as new workers end soon."""

    def __init__(self) -> None:
        self._pause_s = 0.0

    def after(self, lived_s: float) -> float:
        """Return the seconds to wait before the restart of a worker that lived for `lived_s` seconds."""
        pause = 0.0 if lived_s > LONG_LIFE_S else self._pause_s
        self._pause_s = min(max(FIRST_PAUSE_S, 2 * pause), LONGEST_PAUSE_S)
        return pause


@dataclass(slots=True)
class _Place:
    """Place of one of the N workers, with the process that runs there now."""

    number: int
    # Time at which to start the next worker here. None while a worker runs, and while the server stops. At places 2 to
    # N also None until worker 1 is ready.
    due: float | None = None
    pid: int = 0  # 0 while no worker runs
    status: int = -1  # the parent's end of the worker's status pipe; -1 when closed
    said: bytes = b""  # bytes read from the status pipe
    started_at: float = 0.0
    backoff: RestartBackoff = field(default_factory=RestartBackoff)

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.pid})"

    @property
    def ready(self) -> bool:
        return self.said.startswith(_READY)

    @property
    def complaint(self) -> str:
        """Return the reason that the worker reported for its end; empty if it reported none."""
        return self.said.removeprefix(_READY).decode(errors="replace")

    def listen(self) -> None:
        """Read the status pipe until it is empty or closed."""
        while self.status >= 0:
            try:
                said = os.read(self.status, _MOST_OUTPUT)
            except BlockingIOError:
                return
            self.said += said
            if not said:
                self.deafen()

    def deafen(self) -> None:
        if self.status >= 0:
            os.close(self.status)
            self.status = -1


class Companion(Protocol):
    """Process that all workers use, such as a private Redis.

    The companion starts before the workers. Whenever it ends, the parent starts it again.
    """

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def ended(self, code: int) -> None: ...
    def stop(self) -> None: ...


class Supervisor:
    """Parent process that keeps `count` workers running, and their companion if there is one.

    `on_ready` is called once, when all workers are ready. `on_stop` is called when a signal asks the server to stop.
    After `on_stop`, the workers get SIGTERM. A worker that still runs `patience_s` seconds later is killed.
    """

    def __init__(
        self,
        work: Work,
        count: int,
        *,
        patience_s: float,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
        passed_on: tuple[signal.Signals, ...] = (),
        companion: Companion | None = None,
    ) -> None:
        self._companion = companion
        self._companion_due: float | None = None  # time at which to start the companion again; None while it runs
        self._companion_started_at = time.monotonic()
        self._companion_backoff = RestartBackoff()
        self._passed_on = passed_on  # signals that are forwarded to the workers
        self._work = work
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._patience_s = patience_s
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._announced = False  # `on_ready` was called
        self._asked: list[int] = []  # received signals that are not handled yet
        self._kill_at: float | None = None  # time at which running workers are killed; None until they get SIGTERM
        self._failure: BaseException | None = None  # the error that `run` raises at its end
        self._killed_by = 0  # number of the second stop signal; 0: none
        self._wake = (-1, -1)  # pipe: each signal writes to it, which ends a wait
        self._lifeline = (-1, -1)  # pipe without data; only the parent has its write end

    def run(self) -> None:
        """Run the workers until a signal stops them. When this call returns or raises, no worker is left.

        - Start: until all workers have been ready at the same time, a worker that ends before it is ready stops the
          server. Raise ConfigError with the worker's reason, or SystemExit if the worker gave no reason.
        - Restart: a worker that ends in any other case is started again.
        - Stop: the first SIGTERM or SIGINT asks the workers to stop. Raise SystemExit if a worker did not stop in time
          and was killed.
        - Second SIGTERM or SIGINT: kill the workers, then end this process by the same signal.
        """
        with ExitStack() as stack:
            self._wake = stack.enter_context(_pipe())
            self._lifeline = stack.enter_context(_pipe())
            stack.enter_context(self._signals_noted())
            if self._companion is not None:
                stack.callback(self._companion.stop)  # callbacks run in reverse order: after the workers have ended
            stack.callback(self._kill_all)
            gc.freeze()  # the collector then does not write to this memory, so all processes can share it
            # Worker 1 starts first, and sets up the store for all workers. If the settings have a mistake, only
            # worker 1 reports the mistake.
            self._places[0].due = time.monotonic()
            while self._kill_at is None or self._running():
                self._start_due()
                self._wait()
                for place in self._running():
                    self._listen(place)
                self._obey()
                self._reap()
                self._lose_patience()
        if self._killed_by:
            signal.signal(self._killed_by, signal.SIG_DFL)
            os.kill(os.getpid(), self._killed_by)
            raise SystemExit(128 + self._killed_by)  # as process 1 of a container, this process survives its own signal
        if self._failure is not None:
            raise self._failure

    # --- signals ---

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        os.set_blocking(self._wake[0], False)
        os.set_blocking(self._wake[1], False)
        woken_before = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        before = {number: signal.signal(number, self._note) for number in (*_SIGNALS, *self._passed_on)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken_before)

    def _note(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._asked.append(number)

    def _obey(self) -> None:
        while self._asked:
            number = self._asked.pop(0)
            if number in self._passed_on:
                self._signal_all(number)
            elif self._kill_at is None:
                self._on_stop()
                self._stop()
            else:
                self._killed_by = number
                self._signal_all(signal.SIGKILL)

    def _lose_patience(self) -> None:
        if self._running() and self._kill_at is not None and time.monotonic() >= self._kill_at:
            for place in self._running():
                log(log_events.WORKER_KILLED, worker=str(place), after_s=self._patience_s)
            self._failure = self._failure or SystemExit(1)
            self._kill_at = math.inf
            self._signal_all(signal.SIGKILL)

    def _stop(self) -> None:
        self._kill_at = time.monotonic() + self._patience_s
        for place in self._places:
            place.due = None
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for place in self._running():
            # This worker may already have ended. The system gives its pid to no other process until `_reap` calls
            # `waitpid`. So the signal cannot reach another process.
            os.kill(place.pid, number)

    # --- waiting ---

    def _running(self) -> list[_Place]:
        return [place for place in self._places if place.pid]

    def _wait(self) -> None:
        """Wait until a signal comes, a worker writes to its status pipe, or it is time to start or kill a worker."""
        poll = select.poll()
        for source in (self._wake[0], *(place.status for place in self._places)):
            if source >= 0:
                poll.register(source, select.POLLIN)
        moments = [due for due in (self._companion_due, *(place.due for place in self._places)) if due is not None]
        if self._kill_at is not None and self._kill_at < math.inf:
            moments.append(self._kill_at)
        left_s = max(0.0, min(moments) - time.monotonic()) if moments else None
        # Wait at most an hour: `poll` takes milliseconds as a C int, which is too small for the longest drain.
        poll.poll(None if left_s is None else math.ceil(min(left_s, 3600) * 1000))
        try:
            os.read(self._wake[0], 4096)
        except BlockingIOError:
            pass

    def _listen(self, place: _Place) -> None:
        was_ready = place.ready
        place.listen()
        if place.ready and not was_ready:
            log(log_events.WORKER_READY, worker=str(place))
            if not self._announced and self._kill_at is None:
                self._one_more_ready()

    def _one_more_ready(self) -> None:
        for place in self._places:
            if not place.pid and place.due is None:  # this place waited for worker 1
                place.due = time.monotonic()
        if all(place.ready for place in self._places):
            self._announced = True
            self._on_ready()

    # --- deaths ---

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._companion is not None and self._companion.pid == pid:
                self._companion_ended(self._companion, os.waitstatus_to_exitcode(status))
            # As process 1 of a container, this process is also the parent of foreign processes. A foreign process that
            # has ended needs no other action than `waitpid`.
            for place in self._places:
                if place.pid == pid:
                    self._listen(place)
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: _Place, code: int) -> None:
        how = f"{place} {_outcome(code)}"
        complaint, ready = place.complaint, place.ready
        place.deafen()
        place.pid, place.said = 0, b""  # forget the pid first: from now on another process may get it
        if self._kill_at is not None:
            if code not in (0, -signal.SIGTERM, -signal.SIGKILL) and self._failure is None:
                log(log_events.WORKER_ENDED_LATE, worker=place.number, outcome=how)
        elif ready or self._announced:
            self._start_again(place, f"{how}: {complaint}" if complaint else how)
        else:
            if not complaint:
                log(log_events.WORKER_ENDED_EARLY, worker=place.number, outcome=how)
            self._failure = ConfigError(complaint) if complaint else SystemExit(1)
            self._stop()

    def _start_again(self, place: _Place, how: str) -> None:
        now = time.monotonic()
        pause_s = place.backoff.after(now - place.started_at)
        place.due = now + pause_s
        log(log_events.WORKER_ENDED, worker=place.number, outcome=how, when=_when(pause_s))

    def _companion_ended(self, companion: Companion, code: int) -> None:
        companion.ended(code)
        now = time.monotonic()
        pause_s = self._companion_backoff.after(now - self._companion_started_at)
        self._companion_due = now + pause_s
        log(log_events.LOCAL_ENGINE_ENDED, outcome=_outcome(code), when=_when(pause_s))

    def _kill_all(self) -> None:
        """Kill all workers and wait until they have ended. So no worker is left if `run` raises an error."""
        self._signal_all(signal.SIGKILL)
        for place in self._running():
            os.waitpid(place.pid, 0)
            place.pid = 0

    # --- births ---

    def _start_due(self) -> None:
        now = time.monotonic()
        if self._companion is not None and self._companion_due is not None and self._companion_due <= now:
            self._companion_due, self._companion_started_at = None, now
            try:
                self._companion.start()
            except OSError as error:
                pause_s = self._companion_backoff.after(0)
                self._companion_due = now + pause_s
                outcome = f"could not be started: {error.strerror}"
                log(log_events.LOCAL_ENGINE_ENDED, outcome=outcome, when=_when(pause_s))
        for place in self._places:
            if place.due is not None and place.due <= now:
                place.due, place.started_at = None, now
                try:
                    self._fork(place)
                except OSError as error:  # too many processes or open files
                    if not self._announced:
                        raise ConfigError(f"cannot start worker {place.number}: {error.strerror}") from None
                    self._start_again(place, f"worker {place.number} could not be started: {error.strerror}")

    def _fork(self, place: _Place) -> None:
        status, report = os.pipe()
        os.set_blocking(status, False)
        sys.stdout.flush()  # otherwise the worker would write the buffered text again
        sys.stderr.flush()
        # Block signals until the worker has set its own handlers. Before that, the worker still has the parent's
        # handler `_note`, which only adds the signal to a list. The worker never reads this list, so the signal would
        # be lost.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, *self._passed_on))
        try:
            pid = os.fork()
            if not pid:
                self._be_worker(place.number, status, report, mask)
        except OSError:
            os.close(status)
            raise
        finally:
            os.close(report)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        place.pid, place.status = pid, status

    def _be_worker(self, number: int, status: int, report: int, mask: set[int | signal.Signals]) -> NoReturn:
        """Run the worker in the new process, then end the process. This call never returns into the parent's code."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Ignore SIGINT: on Ctrl-C a terminal sends SIGINT to every process, and the parent stops the workers.
            # Ignore the forwarded signals (SIGHUP) until the worker sets its own handlers for them.
            for ignored in (signal.SIGINT, *self._passed_on):
                signal.signal(ignored, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            siblings = [place.status for place in self._places if place.status >= 0]
            for theirs in (*self._wake, self._lifeline[1], status, *siblings):
                os.close(theirs)
            watch = (self._lifeline[0], self._patience_s)
            threading.Thread(target=_stop_with_parent, args=watch, name="greendot-lifeline", daemon=True).start()
            code = _perform(self._work, number, report)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)


def _perform(work: Work, number: int, report: int) -> int:
    """Run the worker's main function; return the exit code."""
    try:
        work(number, lambda: _report(report, _READY))
    except GreendotError as error:
        _report(report, str(error).encode(errors="replace")[: _MOST_OUTPUT // 2])
        return 2
    return 0


def _outcome(code: int) -> str:
    return f"was ended by {_name(-code)}" if code < 0 else f"ended with code {code}"


def _when(pause_s: float) -> str:
    return f"in {pause_s:g} s" if pause_s else "at once"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def _report(report: int, words: bytes) -> None:
    try:
        os.write(report, words)
    except BrokenPipeError:
        pass  # the parent is gone; the lifeline stops this worker


def _stop_with_parent(lifeline: int, patience_s: float) -> None:
    """Wait until the parent ends, then stop this worker. Kill the worker if it still runs after `patience_s` seconds.

    This function runs in a thread, so that it works even while the event loop of the worker is busy or stuck.
    """
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    log(log_events.WORKER_ORPHANED)
    time.sleep(patience_s)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)
