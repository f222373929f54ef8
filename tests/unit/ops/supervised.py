"""A process for tests/unit/ops/test_supervisor.py: a supervisor with workers that behave in one of the ways below.

`python supervised.py BEHAVIOUR COUNT FOLDER PATIENCE_S`, run where no thread is: pytest itself must not be forked.
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
    """One write, so that what several processes say does not mix."""
    os.write(1, f"{word} {os.getpid()}\n".encode())


def life() -> int:
    """The how-many'th process this is that asked. Ask once."""
    for number in count(1):
        try:
            (FOLDER / f"life-{number}").touch(exist_ok=False)
            return number
        except FileExistsError:
            pass
    raise AssertionError


def obedient(ready: Ready) -> None:
    """Serves until SIGTERM, and takes a moment to drain."""

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
    """Does not heed SIGTERM."""
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
    """Dies as soon as it is ready, one way or the other, until its sixth life."""
    number = life()
    if number < 6:
        ready()
        if number % 2:
            os._exit(7)
        os.kill(os.getpid(), signal.SIGRTMIN + 1)
    obedient(ready)


def first_stubborn(ready: Ready) -> None:
    """One stays; the other place is taken again and again."""
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
