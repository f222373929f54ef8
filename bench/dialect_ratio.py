"""Speed of clients of foreign protocols, beside native clients of the same server: python bench/dialect_ratio.py.

Each round measures the native dialect and the foreign one on one server, in changing order. The result is the median of
the ratios, and its range.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from measure import Bench
from run import BUILD, choose_cores, compile_programs, greendot_command

FOREIGN = {
    "GREENDOT_CENTRIFUGE_ENABLED": "true",
    "GREENDOT_PUSHER_APP_ID": "1",
    "GREENDOT_PUSHER_KEY": "bench",
    "GREENDOT_PUSHER_SECRET": "a secret of the bench",
}
NATIVE = "greendot"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dialect", default="pusher", help="pusher or centrifuge")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1.0)
    given = options.parse_args()
    BUILD.mkdir(exist_ok=True)
    compile_programs()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(greendot_command(), BUILD, Path(folder), choose_cores())
        bench.mint_tokens(2_000)
        with bench.greendot(**FOREIGN) as server:
            for mode, key, flags in (
                ("broadcast", "deliveries_per_s", ("--connections", 1_000, "--in-flight", 16)),
                ("connect", "connects_per_s", ()),
            ):
                found: dict[str, list[float]] = {NATIVE: [], given.dialect: []}
                for number in range(given.rounds):
                    for dialect in [*found] if number % 2 else [*found][::-1]:
                        took = ("--warmup", 0.3, "--seconds", given.seconds, "--dialect", dialect)
                        lines, trouble = bench.load_lines(mode, *bench.on(server), *flags, *took)
                        if trouble:
                            raise SystemExit(f"{mode} {dialect}: {trouble}")
                        found[dialect].append(lines[0][key])
                ratios = [other / native for native, other in zip(*found.values(), strict=True)]
                native, other = (statistics.median(values) for values in found.values())
                print(
                    f"{mode}: native {native:,.0f}/s, {given.dialect} {other:,.0f}/s, "
                    f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                )


if __name__ == "__main__":
    main()
