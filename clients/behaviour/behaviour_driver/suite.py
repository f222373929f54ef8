"""Suite: a shared server, a runner process for each language, and scripts that run at the same time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from behaviour_driver.run import PATIENCE_S, Run
from behaviour_driver.runner import Runner
from behaviour_driver.script import Script
from behaviour_driver.server import Server, Start, start_process

WIDTH = 8  # scripts at the same time: most of their time they wait


class Suite:
    """Runs of scripts. Use it as a context manager, and call `play` for each script and runner."""

    def __init__(self, start: Start = start_process) -> None:
        self._start = start
        self._folder = tempfile.TemporaryDirectory(prefix="behaviour-")
        self._shared = Server(Path(self._folder.name), start)
        self._runners: dict[tuple[str, bool], Runner] = {}
        self._starting = asyncio.Lock()
        self._clock = asyncio.Lock()
        self._width = asyncio.Semaphore(WIDTH)

    async def __aenter__(self) -> Suite:
        await self._shared.up()
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(runner.stop() for runner in self._runners.values()))
        await self._shared.down()
        self._folder.cleanup()

    async def play(
        self,
        script: Script,
        name: str,
        command: Sequence[str],
        patience_s: float = PATIENCE_S,
        *,
        is_shared: bool = True,
    ) -> None:
        """Run a script with the runner that the command starts. Raise Unmet if the client does not behave so.

        `patience_s` is the time limit of a step. Scripts share one process of a runner, if `is_shared`.
        """
        if not is_shared:
            async with self._width:
                runner = Runner(name, command)
                await runner.start()
                try:
                    await self._play(script, runner, patience_s)
                finally:
                    await runner.stop()
        elif script.sets_clock:
            # The clock belongs to the process: these scripts have another one, one after the other.
            async with self._clock:
                await self._play(script, await self.runner(name, command, sets_clock=True), patience_s)
        else:
            async with self._width:
                await self._play(script, await self.runner(name, command), patience_s)

    async def runner(self, name: str, command: Sequence[str], *, sets_clock: bool = False) -> Runner:
        """Return the runner of this name, which is started at first use."""
        async with self._starting:
            runner = self._runners.get((name, sets_clock))
            if runner is None:
                runner = self._runners[name, sets_clock] = Runner(name, command)
                await runner.start()
        return runner

    async def _play(self, script: Script, runner: Runner, patience_s: float) -> None:
        if not script.own_server:
            await Run(script, runner, self._shared, patience_s).play()
            return
        with tempfile.TemporaryDirectory(prefix="behaviour-") as folder:
            server = Server(Path(folder), self._start)
            await server.up()
            try:
                await Run(script, runner, server, patience_s).play()
            finally:
                await server.down()
