"""Wall clock of a server, controlled by a test."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SHIM = Path(__file__).parents[1] / "clock_shim.c"
FORMAT = "=q"


def environment(clock_file: Path, compiler: str) -> dict[str, str]:
    """Return the environment that adds the milliseconds in the file to a program's wall clock. Programs may share a
    file.
    """
    if not clock_file.exists():
        clock_file.write_bytes(struct.pack(FORMAT, 0))
    library = clock_file.with_name(f"{clock_file.name}.so")
    if not library.exists():
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_SHIM_FILE": str(clock_file)}


def jump(clock_file: Path, ms: int) -> int:
    """Add to the file and return the total offset of the clock."""
    with clock_file.open("r+b") as file, mmap.mmap(file.fileno(), struct.calcsize(FORMAT)) as mapped:
        (shift,) = struct.unpack(FORMAT, mapped[:])
        mapped[:] = struct.pack(FORMAT, shift + ms)  # eight aligned bytes are written at once
    return int(shift + ms)


def compiler() -> str | None:
    return shutil.which("cc")
