"""Load generator of the benchmarks, for tests with more sockets than Python can serve."""

from __future__ import annotations

import asyncio
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import msgspec

BENCH = Path(__file__).resolve().parent.parent / "bench"
WITHIN_S = 40.0


def compiled(folder: Path) -> Path:
    """Compile the load generator into `folder` and return its path."""
    program = folder / "load"
    sources = sorted(file for part in ("load", "wire") for file in (BENCH / part).glob("*.c"))
    subprocess.run(["cc", "-O2", "-o", program, *sources], check=True, capture_output=True)
    return program


async def generate(program: Path, mode: str, **options: Any) -> dict[str, Any]:
    """Run the load generator to its end and return the measurements."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    process = await asyncio.create_subprocess_exec(program, mode, *flags, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    found: dict[str, Any] = msgspec.json.decode(out.splitlines()[-1])
    return found
