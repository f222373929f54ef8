"""Process for tests/unit/ops/test_supervisor.py: a supervisor with workers that behave in one of the ways below.

`python supervised.py BEHAVIOUR COUNT FOLDER PATIENCE_S` runs in a process without threads, because pytest itself must
not be forked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from greendot.errors import ConfigError, GreendotError
from greendot.ops.supervisor import Supervisor

FOLDER = Path()
Ready = Callable[[], None]


def say(word: str) -> None:
    """Print a word with the process id in one write, so that lines of several processes do not mix."""
    os.write(1, f"{word} {os.getpid()}\n".encode())


def life() -> int:
    """Return the number of this process among those that called. Call once per process."""
    for number in count(1):
        try:
            (FOLDER / f"life-{number}").touch(exist_ok=False)
            return number
        except FileExistsError:
            pass
    raise AssertionError


def obedient(ready: Ready) -> None:
    """Serve until SIGTERM, then take a moment to drain."""

    async def serve() -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        say("serving")
        ready()
        await told.wait()
        say("draining")
        await asyncio.sleep(0.05)
        say("drained")

    asyncio.run(serve())


def stubborn(ready: Ready) -> None:
    """Ignore SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: say("deaf"))
    say("serving")
    ready()
    while True:
        signal.pause()


def refused(ready: Ready) -> None:
    raise ConfigError("the moon is in the wrong place. Move it.")


def crashing(ready: Ready) -> None:
    raise ZeroDivisionError("nobody expected this")


def second_refused(ready: Ready) -> None:
    (refused if life() >= 2 else obedient)(ready)


def second_crashing(ready: Ready) -> None:
    (crashing if life() >= 2 else obedient)(ready)


def short_lived(ready: Ready) -> None:
    """Exit as soon as the worker is ready, by exit code or by signal, until the sixth process."""
    number = life()
    if number < 6:
        ready()
        if number % 2:
            os._exit(7)
        os.kill(os.getpid(), signal.SIGRTMIN + 1)
    obedient(ready)


def first_stubborn(ready: Ready) -> None:
    """Ignore SIGTERM in the first process. Every later process ends at once and is replaced."""
    if life() == 1:
        stubborn(ready)
    ready()


def third_refused(ready: Ready) -> None:
    (refused if life() == 3 else obedient)(ready)


BEHAVIOURS = (
    obedient,
    stubborn,
    refused,
    crashing,
    second_refused,
    second_crashing,
    short_lived,
    first_stubborn,
    third_refused,
)


def main() -> None:
    global FOLDER
    behaviour, workers, folder, patience_s = sys.argv[1:]
    FOLDER = Path(folder)
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    work = {work.__name__: work for work in BEHAVIOURS}[behaviour]
    try:
        Supervisor(
            lambda number, ready: work(ready),
            int(workers),
            patience_s=float(patience_s),
            on_ready=lambda: say("ready"),
            on_stop=lambda: say("stopping"),
        ).run()
    except GreendotError as error:
        print(f"greendot: {error}", file=sys.stderr)
        sys.exit(2)
    say("stopped")


if __name__ == "__main__":
    main()
