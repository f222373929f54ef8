"""Run the behaviour suite with one runner: `python clients/behaviour/run.py -- COMMAND…`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from behaviour_driver.run import Run, Unmet
from behaviour_driver.runner import Runner
from behaviour_driver.script import Script, load
from behaviour_driver.server import Server

SCRIPTS = Path(__file__).parent / "scripts"


async def play(script: Script, runner: Runner, shared: Server) -> None:
    """Run a script, on a server of its own if it needs one."""
    if not script.own_server:
        await Run(script, runner, shared).play()
        return
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        await server.up()
        try:
            await Run(script, runner, server).play()
        finally:
            await server.down()


async def main(command: list[str], scripts: list[Script]) -> int:
    """Run the scripts and print a line for each; return the number of failures."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        server, runner = Server(Path(folder)), Runner(command[0], command)
        try:
            await server.up()
            await runner.start()
            for script in scripts:
                began = time.monotonic()
                try:
                    await play(script, runner, server)
                except Unmet as error:
                    failed += 1
                    print(f"FAIL  {script.name}: {script.about}\n{error}", flush=True)
                else:
                    print(f"ok    {script.name} ({time.monotonic() - began:.1f} s): {script.about}", flush=True)
        finally:
            await runner.stop()
            await server.down()
    print(f"{len(scripts) - failed} of {len(scripts)} behaviours are as documented")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run behaviour scripts with the runner of a client.")
    parser.add_argument("--script", action="append", help="name of a script; by default all")
    parser.add_argument("command", nargs="+", help="command that starts the runner, after --")
    given = parser.parse_args()
    names = given.script or [path.stem for path in sorted(SCRIPTS.glob("*.toml"))]
    sys.exit(asyncio.run(main(given.command, [load(SCRIPTS / f"{name}.toml") for name in names])) > 0)
