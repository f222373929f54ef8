"""Run the behaviour suite with one runner: `python clients/behaviour/behave.py -- COMMAND…`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from behaviour_driver.run import Unmet
from behaviour_driver.script import Script, load, load_all
from behaviour_driver.suite import Suite

SCRIPTS = Path(__file__).parent / "scripts"


async def main(command: list[str], scripts: list[Script]) -> int:
    """Run the scripts and print a line for each; return the number of failures."""

    async def play(script: Script) -> bool:
        began = time.monotonic()
        try:
            await suite.play(script, "runner", command)
        except Unmet as error:
            print(f"FAIL  {script.name}: {script.about}\n{error}", flush=True)
            return False
        print(f"ok    {script.name} ({time.monotonic() - began:.1f} s): {script.about}", flush=True)
        return True

    async with Suite() as suite:
        met = sum(await asyncio.gather(*map(play, scripts)))
    print(f"{met} of {len(scripts)} behaviours are as documented")
    return len(scripts) - met


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run behaviour scripts with the runner of a client.")
    parser.add_argument("--script", action="append", help="name of a script; by default all")
    parser.add_argument("command", nargs="+", help="command that starts the runner, after --")
    given = parser.parse_args()
    chosen = [load(SCRIPTS / f"{name}.toml") for name in given.script] if given.script else load_all(SCRIPTS)
    sys.exit(asyncio.run(main(given.command, chosen)) > 0)
