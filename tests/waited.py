"""How long processes had work and no processor: time that other programs on the machine took, not they themselves."""

from __future__ import annotations

from pathlib import Path


def waited_s(*pids: int) -> float:
    """Return the seconds that the first threads of these processes have waited for a processor, all together."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9
