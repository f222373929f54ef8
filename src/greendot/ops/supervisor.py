"""`greendot serve --workers N`: several processes on one port, and a parent that keeps them running.

The parent serves nobody and has neither an event loop nor a thread, so that it may fork at any time. Two kinds of
pipes join it with its workers: on the status pipe a worker says that it is ready, or why it cannot be; the lifeline
carries nothing and ends with the parent, however that ends. A worker is stopped by SIGTERM, whoever sends it.
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
from typing import NoReturn

from greendot.errors import ConfigError, GreendotError
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.listener import bind

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LONG_LIFE_S = 10.0  # a worker that lived longer did not die of its start

# What a worker runs, given its number: it calls its other argument when it is ready, and returns after SIGTERM.
Work = Callable[[int, Callable[[], None]], None]

_READY = b"\0"  # what a worker reports first if all is well; anything else is why it ends
_MOST_OUTPUT = 4096  # bytes a pipe takes at once
_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGCHLD)


def reserve(host: str, port: int) -> socket.socket:
    """A socket that holds the port for workers to listen on; port 0 takes a free one. ConfigError if it is in use."""
    if port:
        # Sockets that share a port do not see each other: without this, two Greendots would take turns on it.
        bind(host, port).close()
    return bind(host, port, shared=True)


class RestartBackoff:
    """How long a worker's place stays empty: not at all at first, ever longer while those who take it die young."""

    def __init__(self) -> None:
        self._pause_s = 0.0

    def after(self, lived_s: float) -> float:
        """The pause after one that lived so long."""
        pause = 0.0 if lived_s > LONG_LIFE_S else self._pause_s
        self._pause_s = min(max(FIRST_PAUSE_S, 2 * pause), LONGEST_PAUSE_S)
        return pause


@dataclass(slots=True)
class _Place:
    """One of the N, and the worker that has it now."""

    number: int
    due: float | None = None  # when the next worker is started here; None while one runs, or none is wanted
    pid: int = 0  # 0 while no worker runs
    status: int = -1  # our end of its status pipe; -1 when that has ended
    said: bytes = b""  # what came out of it
    started_at: float = 0.0
    backoff: RestartBackoff = field(default_factory=RestartBackoff)

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.pid})"

    @property
    def ready(self) -> bool:
        return self.said.startswith(_READY)

    @property
    def complaint(self) -> str:
        """Why it could not go on, in its own words; empty if it did not say."""
        return self.said.removeprefix(_READY).decode(errors="replace")

    def listen(self) -> None:
        """Take in what it has said until now."""
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


class Supervisor:
    """Keeps `count` workers running. `on_ready` is called once, when all of them are; `on_stop` when a signal ends it.

    A worker that has not stopped `patience_s` after it was told to is killed.
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
    ) -> None:
        self._passed_on = passed_on  # signals that are the workers' affair
        self._work = work
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._patience_s = patience_s
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._announced = False
        self._asked: list[int] = []  # signals to stop that were not obeyed yet
        self._kill_at: float | None = None  # when patience ends; None until the workers are told to stop
        self._failure: BaseException | None = None  # what `run` ends with
        self._killed_by = 0  # the second signal
        self._wake = (-1, -1)  # a pipe: signals write to it, so that none is slept through
        self._lifeline = (-1, -1)  # a pipe: nothing is written, and only the parent holds its second end

    def run(self) -> None:
        """Returns when it was told to stop and all workers have. None is left whatever happens.

        ConfigError with a worker's own words if it could not start, SystemExit if it crashed before all were ready.
        A second signal kills the workers and ends this process as it would have ended without us.
        """
        with ExitStack() as stack:
            self._wake = stack.enter_context(_pipe())
            self._lifeline = stack.enter_context(_pipe())
            stack.enter_context(self._signals_noted())
            stack.callback(self._kill_all)
            gc.freeze()  # what the collector leaves alone stays one copy for all processes
            # The first goes ahead: it sets up the store for all, and what is wrong with the settings is found once.
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
            raise SystemExit(128 + self._killed_by)  # the first process of a container survives its own signal
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
            os.kill(place.pid, number)  # it may be dead but is not reaped: the number is nobody else's yet

    # --- waiting ---

    def _running(self) -> list[_Place]:
        return [place for place in self._places if place.pid]

    def _wait(self) -> None:
        """Until a signal comes, a worker says something, or something is due."""
        poll = select.poll()
        for source in (self._wake[0], *(place.status for place in self._places)):
            if source >= 0:
                poll.register(source, select.POLLIN)
        moments = [place.due for place in self._places if place.due is not None]
        if self._kill_at is not None and self._kill_at < math.inf:
            moments.append(self._kill_at)
        left_s = max(0.0, min(moments) - time.monotonic()) if moments else None
        # Not longer than an hour at once: the system counts milliseconds and not far enough for the longest drain.
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
            if not place.pid and place.due is None:  # it waited for the first
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
            # As the first process of a container we also inherit strangers: they are reaped and no more.
            for place in self._places:
                if place.pid == pid:
                    self._listen(place)
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: _Place, code: int) -> None:
        how = f"{place} " + (f"was ended by {_name(-code)}" if code < 0 else f"ended with code {code}")
        complaint, ready = place.complaint, place.ready
        place.deafen()
        place.pid, place.said = 0, b""  # first of all: from now on its number may be somebody else's
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
        when = f"in {pause_s:g} s" if pause_s else "at once"
        log(log_events.WORKER_ENDED, worker=place.number, outcome=how, when=when)

    def _kill_all(self) -> None:
        """The last resort when `run` is left by an error: nobody is left behind."""
        self._signal_all(signal.SIGKILL)
        for place in self._running():
            os.waitpid(place.pid, 0)
            place.pid = 0

    # --- births ---

    def _start_due(self) -> None:
        now = time.monotonic()
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
        sys.stdout.flush()  # or the worker would say it again
        sys.stderr.flush()
        # A signal to the new process would be noted where nobody looks, until it has set its own ways.
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
        """The new process: it never returns into what the parent was doing."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # A terminal's Ctrl-C goes to every process; the parent decides what it means and passes it on.
            for ignored in (signal.SIGINT, *self._passed_on):  # of the latter it hears when it has set its ways
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
    """Do the work; the exit code it ends with."""
    try:
        work(number, lambda: _report(report, _READY))
    except GreendotError as error:
        _report(report, str(error).encode(errors="replace")[: _MOST_OUTPUT // 2])
        return 2
    return 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def _report(report: int, words: bytes) -> None:
    try:
        os.write(report, words)
    except BrokenPipeError:
        pass  # the parent is gone, which the lifeline tells too


def _stop_with_parent(lifeline: int, patience_s: float) -> None:
    """A thread of each worker, so that one without its parent stops even while its event loop is busy or stuck."""
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
