"""Fuzzing with coverage of every target, by atheris: `make fuzz-long`. docs/reference/fuzzing.md has the figures.

Each target runs in a process of its own, which begins with the kept corpus. New inputs that reach new code are in
build/fuzz. With KEEP=1 they are added to the kept corpus.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz.corpus import FOLDER, WORDS, keep, kept

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
RUNS = {  # inputs of each target
    "handshake": 2_000_000,
    "framing": 2_000_000,
    "frame": 300_000,
    "codec": 3_000_000,
    "protobuf": 1_000_000,
    "bus": 2_500_000,
    "http": 100_000,  # a whole node and a socket for each
}
# Packages whose coverage guides the mutations. Others would only take time.
MEASURED = [f"greendot.{name}" for name in ("transport", "protocol", "engine.redis", "compat.centrifuge", "http")]
DONE = re.compile(r"Done (\d+) runs in (\d+) second")
COVERED = re.compile(r"cov: (\d+)")


def fuzz_one(target: str, options: list[str]) -> None:
    """Fuzz in this process, which ends with the last input."""
    import atheris

    with atheris.instrument_imports(include=MEASURED):
        from fuzz.targets import TARGETS
    with TARGETS[target]() as function:
        atheris.Setup([sys.argv[0], *options], function)
        atheris.Fuzz()


def _start(target: str, options: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.long", "--one", target, *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def _unpacked(folder: Path, target: str) -> Path:
    place = folder / f"{target}-kept"
    place.mkdir()
    for number, data in enumerate(kept(target) if (FOLDER / f"{target}.txt").exists() else [b"x"]):
        (place / str(number)).write_bytes(data)
    return place


def run(target: str, runs: int, folder: Path) -> tuple[int, bool]:
    """Fuzz a target; print a line of figures. Return the number of inputs, and whether all kept the promises."""
    new, seeds, words = FOUND / target, _unpacked(folder, target), folder / f"{target}.dict"
    new.mkdir(parents=True, exist_ok=True)
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"\n' for word in WORDS))
    options = [f"-runs={runs}", "-max_len=4096", "-timeout=30", "-rss_limit_mb=4096", f"-dict={words}"]
    began = time.monotonic()
    code, output = _start(target, [*options, f"-artifact_prefix={new}-", str(new), str(seeds)])
    took_s = time.monotonic() - began
    done, covered = DONE.search(output), COVERED.findall(output)
    if code or done is None:
        print(f"{target}: failed after {took_s:.0f} s\n{output[-4_000:]}")
        for path in FOUND.glob(f"{target}-*"):
            print(f"Input that failed, for tests/fuzz/corpus/{target}.txt once it is mended:\n{path.read_bytes()!r}")
        return 0, False
    count = int(done[1])
    reached = f"{covered[-1]} places reached" if covered else ""
    print(f"{target}: {count:,} inputs in {took_s:.0f} s, {count / took_s:,.0f} a second, {reached}", flush=True)
    return count, True


def keep_found(target: str) -> None:
    """Add the inputs that reached new code to the kept corpus."""
    keep(target, {*kept(target), *(path.read_bytes() for path in (FOUND / target).iterdir())})
    print(f"{target}: {len(kept(target))} inputs are kept")


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        fuzz_one(sys.argv[2], sys.argv[3:])
        return 0
    chosen = sys.argv[1:] or [*RUNS]
    scale = float(os.environ.get("FUZZ_SCALE") or 1)
    total, good, began = 0, True, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        for target in chosen:
            count, held = run(target, round(RUNS[target] * scale), Path(name))
            total, good = total + count, good and held
            if held and os.environ.get("KEEP"):
                keep_found(target)
    took_s = time.monotonic() - began
    print(f"{total:,} inputs in {took_s:.0f} s, {total / took_s:,.0f} a second; {'all held' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
