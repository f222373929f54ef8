"""Supervisor of `greendot serve --workers N`: several processes on one port, and a parent that keeps them running.

The parent serves no client and has neither an event loop nor a thread, so it may fork at any time. Two kinds of pipes
connect the parent with its workers. A worker reports on its status pipe that it is ready, or why it failed. The
second pipe, the lifeline, carries no data: it closes when the parent ends, for whatever reason. A worker then stops.
SIGTERM also stops a worker, whether the parent or another process sends it.
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

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LONG_LIFE_S = 10.0  # a worker that lived longer did not fail at its start

# Main function of a worker. Arguments: the worker's number, and a callback for readiness. Returns after SIGTERM.
Work = Callable[[int, Callable[[], None]], None]

_READY = b"\0"  # first byte that a ready worker writes; all other bytes are the reason why the worker ends
_MOST_OUTPUT = 4096  # PIPE_BUF: a write of at most this many bytes is never split; also the size of a read
_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGCHLD)


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that holds the port for the workers; port 0 takes a free one.

    Raise ConfigError if the port is in use.
    """
    if port:
        # Shared sockets do not conflict with each other: without this test, two Greendots would share the port.
        bind(host, port).close()
    return bind(host, port, shared=True)


class RestartBackoff:
    """Backoff before a worker is restarted: none at first, then doubling while new workers die young."""

    def __init__(self) -> None:
        self._pause_s = 0.0

    def after(self, lived_s: float) -> float:
        """Return the pause in seconds after a worker that lived for `lived_s`."""
        pause = 0.0 if lived_s > LONG_LIFE_S else self._pause_s
        self._pause_s = min(max(FIRST_PAUSE_S, 2 * pause), LONGEST_PAUSE_S)
        return pause


@dataclass(slots=True)
class _Place:
    """Place of one of the N workers, and the process that fills the place now."""

    # `due` is None while a worker runs, while places 2 to N wait until worker 1 is ready, and during a stop.
    number: int
    due: float | None = None  # when to start the next worker here; None: see above
    pid: int = 0  # 0 while no worker runs
    status: int = -1  # our end of the worker's status pipe; -1 when closed
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
        """Return the worker's reason for ending; empty if it reported none."""
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
    """Process that all workers use. It starts before the workers. The parent restarts it whenever it ends."""

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def ended(self, code: int) -> None: ...
    def stop(self) -> None: ...


class Supervisor:
    """Parent that keeps `count` workers running, and their companion if there is one.

    `on_ready` is called once, when all workers are ready. `on_stop` is called when a signal starts the stop. A worker
    that still runs `patience_s` seconds after SIGTERM is killed.
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
        self._companion_due: float | None = None  # when to start the companion again; None while it runs
        self._companion_started_at = time.monotonic()
        self._companion_backoff = RestartBackoff()
        self._passed_on = passed_on  # signals that are forwarded to the workers
        self._work = work
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._patience_s = patience_s
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._announced = False
        self._asked: list[int] = []  # received signals that are not handled yet
        self._kill_at: float | None = None  # when workers are killed; None until they get SIGTERM
        self._failure: BaseException | None = None  # the error that `run` raises at its end
        self._killed_by = 0  # number of the second stop signal; 0: none
        self._wake = (-1, -1)  # a pipe that signals write to, so that each signal ends a wait
        self._lifeline = (-1, -1)  # a pipe without data, whose write end only the parent holds

    def run(self) -> None:
        """Run the workers until a signal stops them. Return when all have ended; no worker is left in any case.

        Until all workers have been ready at the same time, a worker that ends before it is ready stops the server.
        Raise ConfigError with its reason, or SystemExit if it gave none. Any other worker that ends is restarted. Raise
        SystemExit also if a worker had to be killed. A second signal kills the workers. The signal's default action
        then ends this process.
        """
        with ExitStack() as stack:
            self._wake = stack.enter_context(_pipe())
            self._lifeline = stack.enter_context(_pipe())
            stack.enter_context(self._signals_noted())
            if self._companion is not None:
                stack.callback(self._companion.stop)  # after the workers
            stack.callback(self._kill_all)
            gc.freeze()  # memory that the collector does not touch stays shared by all processes
            # Worker 1 starts first: it sets up the store for all, and a mistake in the settings is reported once.
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
            raise SystemExit(128 + self._killed_by)  # process 1 of a container survives its own signal
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
            # A worker in this list may already be dead. No other process can have its pid before `_reap` has called
            # `waitpid` for it.
            os.kill(place.pid, number)

    # --- waiting ---

    def _running(self) -> list[_Place]:
        return [place for place in self._places if place.pid]

    def _wait(self) -> None:
        """Wait until a signal comes, a worker writes to its status pipe, or a start or kill is due."""
        poll = select.poll()
        for source in (self._wake[0], *(place.status for place in self._places)):
            if source >= 0:
                poll.register(source, select.POLLIN)
        moments = [due for due in (self._companion_due, *(place.due for place in self._places)) if due is not None]
        if self._kill_at is not None and self._kill_at < math.inf:
            moments.append(self._kill_at)
        left_s = max(0.0, min(moments) - time.monotonic()) if moments else None
        # Wait at most an hour at once: poll takes milliseconds in a C int, too small for the longest allowed drain.
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
            # Process 1 of a container is also the parent of foreign processes. `waitpid` is enough for these.
            for place in self._places:
                if place.pid == pid:
                    self._listen(place)
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: _Place, code: int) -> None:
        how = f"{place} {_outcome(code)}"
        complaint, ready = place.complaint, place.ready
        place.deafen()
        place.pid, place.said = 0, b""  # before all else: from now on another process may get this pid
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
        """Kill all workers and wait for their end, so that no worker is left when `run` ends with an error."""
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
        # Block signals until the worker has its own handlers. Until then it has the parent's handler `_note`, which
        # adds the signal to a list that the worker never reads.
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
        """Run the worker in the new process. Never return into the parent's code: end with `os._exit`."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # A terminal sends Ctrl-C to every process. The parent handles it and stops the workers.
            # Ignore the forwarded signals (SIGHUP) only until the worker installs its own handlers for them.
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
    """Stop this worker when its parent ends; kill it after `patience_s`.

    Runs in a thread, so that the worker stops even while its event loop is busy or stuck.
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
