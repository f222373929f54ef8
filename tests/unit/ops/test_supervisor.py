"""Supervisor and workers: real processes, real signals. tests/e2e/test_workers.py covers the whole server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from e2e.processes import PATIENCE_S, until
from greendot.errors import ConfigError
from greendot.ops.supervisor import FIRST_PAUSE_S, LONG_LIFE_S, LONGEST_PAUSE_S, RestartBackoff, reserve
from greendot.transport.listener import bind

from . import supervised

Behaviour = Callable[[supervised.Ready], None]


class Family:
    """Process of a supervisor, and the output of the supervisor and its workers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.said: list[tuple[str, int]] = []  # word and process id
        self.err = ""
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_err())]

    async def _read_out(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            word, pid = line.decode().split()
            self.said.append((word, int(pid)))

    async def _read_err(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.err += line.decode()

    def who(self, word: str) -> list[int]:
        return [pid for said, pid in self.said if said == word]

    async def hear(self, word: str, times: int = 1) -> list[int]:
        """Wait until `word` was printed `times` times. Return the processes that printed it."""
        await until(lambda: len(self.who(word)) >= times)
        return self.who(word)

    async def ended(self) -> int:
        """Wait until the parent and all workers have closed their outputs. Return the parent's exit code."""
        await asyncio.wait_for(asyncio.gather(*self._readers), PATIENCE_S)
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)

    async def end(self) -> None:
        """Kill all processes that the test left."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.ended()


def is_there(pid: int) -> bool:
    """Return whether the process exists, also as a zombie."""
    return Path(f"/proc/{pid}").exists()


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie. An orphan stays a zombie until init collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def lives_in(folder: Path) -> int:
    """Return the number of processes that called `supervised.life`."""
    return len([*folder.iterdir()])


@asynccontextmanager
async def family(behaviour: Behaviour, folder: Path, count: int = 2, patience_s: float = 20) -> AsyncIterator[Family]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, supervised.__file__, behaviour.__name__, str(count), str(folder), str(patience_s)),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,  # as in a terminal of its own
    )
    running = Family(process)
    try:
        yield running
    finally:
        await running.end()


# --- starting ---


async def test_it_is_ready_once_when_every_worker_is(tmp_path: Path) -> None:
    async with family(supervised.obedient, tmp_path, 3) as running:
        assert await running.hear("ready") == [running.pid]
        assert [word for word, _ in running.said] == ["serving"] * 3 + ["ready"]
        workers = running.who("serving")
        assert len({*workers, running.pid}) == 4
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 0
        assert running.who("ready") == [running.pid]
        assert running.err.count(" is ready") == 3


@pytest.mark.parametrize("behaviour", [supervised.refused, supervised.second_refused])
async def test_a_failed_start_of_a_worker_is_reported_once_and_ends_all_workers(
    tmp_path: Path, behaviour: Behaviour
) -> None:
    async with family(behaviour, tmp_path, 3) as running:
        assert await running.ended() == 2
        assert running.err.count("the moon is in the wrong place") == 1
        assert "greendot: the moon is in the wrong place. Move it.\n" in running.err
        assert "Traceback" not in running.err
        assert {"ready", "stopping", "stopped"} & {word for word, _ in running.said} == set()
        assert running.who("drained") == running.who("serving")[: len(running.who("drained"))]
        assert not any(is_there(pid) for _, pid in running.said)


@pytest.mark.parametrize("behaviour", [supervised.crashing, supervised.second_crashing])
async def test_a_crash_before_all_are_ready_is_shown_and_ends_all(tmp_path: Path, behaviour: Behaviour) -> None:
    async with family(behaviour, tmp_path) as running:
        assert await running.ended() == 1
        assert "ZeroDivisionError: nobody expected this" in running.err
        assert re.search(r"worker \d \(pid \d+\) ended with code 1 before it was ready", running.err)
        assert running.who("ready") == running.who("stopped") == []
        assert not any(is_there(pid) for _, pid in running.said)


# --- stopping ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to every process, as a terminal does"])
async def test_a_signal_lets_every_worker_drain_once(tmp_path: Path, number: signal.Signals, to_all: bool) -> None:
    async with family(supervised.obedient, tmp_path, 3) as running:
        await running.hear("ready")
        (os.killpg if to_all else os.kill)(running.pid, number)
        assert await running.ended() == 0
        workers = sorted(running.who("serving"))
        assert len(workers) == 3
        assert sorted(running.who("draining")) == sorted(running.who("drained")) == workers
        assert running.who("stopping") == running.who("stopped") == [running.pid]
        assert running.said[-1] == ("stopped", running.pid)
        assert "Traceback" not in running.err
        assert not any(is_there(pid) for pid in workers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_kills_those_who_do_not_stop(tmp_path: Path, number: signal.Signals) -> None:
    async with family(supervised.stubborn, tmp_path) as running:
        await running.hear("ready")
        os.kill(running.pid, number)
        workers = await running.hear("deaf", 2)
        os.kill(running.pid, number)
        assert await running.ended() == -number
        assert sorted(running.who("deaf")) == sorted(workers), "each worker must get SIGTERM once"
        assert "Traceback" not in running.err
        assert not any(is_there(pid) for pid in workers)


async def test_a_worker_that_does_not_stop_is_killed_when_patience_ends(tmp_path: Path) -> None:
    async with family(supervised.stubborn, tmp_path, patience_s=0.2) as running:
        await running.hear("ready")
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 1
        assert running.err.count("did not stop within 0.2 s and is killed") == 2
        assert not any(is_there(pid) for pid in running.who("serving"))


async def test_it_stops_while_workers_are_still_starting(tmp_path: Path) -> None:
    async with family(supervised.obedient, tmp_path, 50) as running:
        await running.hear("serving")
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 0
        assert running.said[-1] == ("stopped", running.pid)
        assert not any(is_there(pid) for _, pid in running.said)


async def test_no_worker_is_started_while_others_are_stopping(tmp_path: Path) -> None:
    async with family(supervised.first_stubborn, tmp_path, patience_s=1.2) as running:
        await until(lambda: "a replacement starts in 0.8 s" in running.err)
        lives = lives_in(tmp_path)
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 1
        assert lives_in(tmp_path) == lives


# --- failures ---


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_worker_that_ends_is_replaced_and_leaves_no_zombie(tmp_path: Path, number: signal.Signals) -> None:
    async with family(supervised.obedient, tmp_path) as running:
        await running.hear("ready")
        first, second = running.who("serving")
        os.kill(first, number)
        third = (await running.hear("serving", 3))[2]
        await until(lambda: not is_there(first))
        assert is_there(second)
        how = "ended with code 0" if number == signal.SIGTERM else f"was ended by {number.name}"
        await until(lambda: f"worker 1 (pid {first}) {how}; a replacement starts at once" in running.err)
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 0
        assert {second, third} <= {*running.who("drained")}
        assert running.who("ready") == [running.pid]


async def test_one_that_keeps_dying_is_started_ever_later(tmp_path: Path) -> None:
    async with family(supervised.short_lived, tmp_path, 1) as running:
        await running.hear("serving")
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 0
        found = re.findall(r"worker 1 \(pid \d+\) ([^;\n]*); a replacement starts (.*)", running.err)
        assert [when for _, when in found] == ["at once", "in 0.1 s", "in 0.2 s", "in 0.4 s", "in 0.8 s"]
        assert {how for how, _ in found} == {f"was ended by signal {signal.SIGRTMIN + 1}", "ended with code 7"}


async def test_one_that_cannot_start_again_does_not_end_the_others(tmp_path: Path) -> None:
    async with family(supervised.third_refused, tmp_path) as running:
        await running.hear("ready")
        first, second = running.who("serving")
        os.kill(first, signal.SIGKILL)
        third = (await running.hear("serving", 3))[2]
        assert (
            "ended with code 2: the moon is in the wrong place. Move it.; a replacement starts in 0.1 s" in running.err
        )
        os.kill(running.pid, signal.SIGTERM)
        assert await running.ended() == 0
        assert sorted(running.who("drained")) == sorted([second, third])


async def test_workers_whose_parent_is_killed_drain_and_go(tmp_path: Path) -> None:
    async with family(supervised.obedient, tmp_path, 3) as running:
        await running.hear("ready")
        os.kill(running.pid, signal.SIGKILL)
        assert await running.ended() == -signal.SIGKILL
        assert sorted(running.who("drained")) == sorted(running.who("serving"))
        await until(lambda: not any(is_running(pid) for pid in running.who("serving")))


async def test_workers_that_were_started_again_notice_too_that_their_parent_is_killed(tmp_path: Path) -> None:
    async with family(supervised.obedient, tmp_path) as running:
        await running.hear("ready")
        os.kill(running.who("serving")[0], signal.SIGKILL)
        await running.hear("serving", 3)
        os.kill(running.pid, signal.SIGKILL)
        await running.ended()
        assert sorted(running.who("drained")) == sorted(running.who("serving")[1:])


async def test_a_stuck_worker_does_not_outlive_its_parent_for_long(tmp_path: Path) -> None:
    async with family(supervised.stubborn, tmp_path, patience_s=0.2) as running:
        await running.hear("ready")
        os.kill(running.pid, signal.SIGKILL)
        await running.ended()
        assert len(running.who("deaf")) == 2
        await until(lambda: not any(is_running(pid) for pid in running.who("serving")))


# --- the pause before a restart ---


def test_the_pause_grows_to_its_limit_and_a_long_life_ends_it() -> None:
    backoff = RestartBackoff()
    pauses = [backoff.after(1.0) for _ in range(9)]
    assert pauses == [0, FIRST_PAUSE_S, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert [backoff.after(LONG_LIFE_S + 1), backoff.after(1.0)] == [0, FIRST_PAUSE_S]


# --- the port ---


def test_a_reserved_port_is_free_for_its_workers_only() -> None:
    with reserve("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        assert port > 0
        with bind("127.0.0.1", port, shared=True) as one, bind("127.0.0.1", port, shared=True) as other:
            one.listen()
            other.listen()
            for take in (bind, reserve):
                with pytest.raises(ConfigError, match=f"port {port} is in use by another program"):
                    take("127.0.0.1", port)


def test_a_port_in_exclusive_use_by_another_program_cannot_be_reserved() -> None:
    with bind("127.0.0.1", 0) as alone:
        alone.listen()
        port = alone.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use by another program"):
            reserve("127.0.0.1", port)


def test_a_port_that_was_given_back_can_be_reserved() -> None:
    with reserve("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
    with reserve("127.0.0.1", port) as held:
        assert held.getsockname()[1] == port
