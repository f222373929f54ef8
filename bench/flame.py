"""Flame graph of connects: which functions take the server's time while clients connect, say hello and leave.

Run `python bench/flame.py` with py-spy on PATH (`pip install py-spy`), which samples the server from another process.
The picture is bench/plots/connect.svg. The width of a box is the share of samples with this function on the stack, and
its caller is above. Time in C and in the kernel belongs to the function that called it. What is below `event loop` and
has no box is the loop itself, with the kernel: reading and closing sockets.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from measure import HERE, Bench, Trouble
from run import BUILD, choose_cores, compile_programs, greendot_command

SECONDS = 12
RATE = 250  # samples per second
LEAST = 0.004  # share of samples of the narrowest box
WIDTH, ROW, LETTER = 1_200, 17, 6.6
COLOURS = {"greendot": "#f5b36b", "other": "#8fc1e3"}
TARGET = HERE / "plots" / "connect.svg"


@dataclass
class Box:
    """Function in the graph, with the functions that it called."""

    name: str
    kind: str
    samples: int = 0
    below: dict[str, Box] = field(default_factory=dict)

    def add(self, stack: list[tuple[str, str]], samples: int) -> None:
        self.samples += samples
        if stack:
            (name, kind), *rest = stack
            self.below.setdefault(name, Box(name, kind)).add(rest, samples)


def sampled(bench: Bench) -> Counter[str]:
    """Return the stacks of the server's main thread while clients connect, with the number of samples of each."""
    raw = bench.folder / "stacks"
    with bench.greendot() as server:
        bench.load("connect", *bench.on(server), "--warmup", 0, "--seconds", 2)
        sampler = ["py-spy", "record", "--format", "raw", "--rate", str(RATE), "--duration", str(SECONDS)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen([*sampler, "--output", raw, "--pid", str(server.pid)], stdout=quiet, stderr=quiet) as spy:
            bench.load("connect", *bench.on(server), "--warmup", 0, "--seconds", SECONDS + 2)
            if spy.wait() != 0:
                raise Trouble("py-spy failed. It needs the right to trace other processes (ptrace).")
    stacks: Counter[str] = Counter()
    for line in raw.read_text().splitlines():
        stack, _, samples = line.rpartition(" ")
        if "greendot/store/sqlite/thread" not in stack:
            stacks[stack] += int(samples)
    return stacks


def tree(stacks: Counter[str]) -> Box:
    """Join the stacks, from the event loop on."""
    root = Box("event loop", "other")
    for stack, samples in stacks.items():
        frames = stack.split(";")
        at = next((number for number, text in enumerate(frames) if text.startswith("Runner.run")), -1)
        root.add([frame_of(text) for text in frames[at + 1 :]], samples)
    return root


def frame_of(text: str) -> tuple[str, str]:
    """Return the name of a frame for the picture, and its kind."""
    found = re.fullmatch(r"(.*) \((.*?)(?:\.py)?(?::\d+)?\)", text)
    name, file = (found[1], found[2]) if found else (text, "")
    is_ours = file.startswith("greendot/")
    return f"{name} ({file.removeprefix('greendot/')})", "greendot" if is_ours else "other"


def picture(root: Box) -> str:
    """Return the graph as SVG."""
    rows: list[str] = []
    scale = WIDTH / root.samples

    def draw(box: Box, x: float, row: int) -> None:
        width, share = box.samples * scale, box.samples / root.samples
        letters = int((width - 4) / LETTER)
        shown = box.name if len(box.name) <= letters else box.name[: max(0, letters - 1)] + "…" if letters > 2 else ""
        rows.append(
            f'<g><title>{escape(box.name)}: {share:.1%}</title><rect x="{x:.1f}" y="{row * ROW}" width="{width:.1f}" '
            f'height="{ROW - 1}" fill="{COLOURS[box.kind]}"/>'
            + (f'<text x="{x + 3:.1f}" y="{row * ROW + 12}">{escape(shown)}</text>' if shown else "")
            + "</g>"
        )
        for below in sorted(box.below.values(), key=lambda one: -one.samples):
            if below.samples >= LEAST * root.samples:
                draw(below, x, row + 1)
            x += below.samples * scale

    draw(root, 0, 0)
    height = max(int(y) for y in re.findall(r' y="(\d+)" width', "".join(rows))) + ROW
    size = f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, *rows, "</svg>\n"])


def main() -> None:
    if shutil.which("py-spy") is None:
        raise SystemExit("py-spy is not installed: pip install py-spy")
    with tempfile.TemporaryDirectory() as folder:
        compile_programs()
        bench = Bench(greendot_command(), BUILD, Path(folder), choose_cores())
        bench.mint_tokens(5_000)
        TARGET.write_text(picture(tree(sampled(bench))))
    print(f"written: {TARGET.relative_to(HERE.parent)}", file=sys.stderr)


if __name__ == "__main__":
    main()
