"""Run of the Autobahn suite against the echo: `make autobahn`. docs/reference/rfc6455.md has the outcome.

The suite is a program for Python 2.7. It is installed in a temporary folder and runs in a process of its own. None of
its code is part of this project.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rfc6455.echo import PATH, EchoConnection, LimitlessConnection, echoing, lift_limits
from rfc6455.expected import LIFTED, SUITE, TOTAL, Outcome, deviations, page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rfc6455.md"
AT_MOST_S = 900
# As the suite requires, without the compiled parts of Autobahn.
REQUIREMENTS = """
    Twisted==19.10.0 autobahn==0.10.9 txaio==2.1.0 incremental==16.10.1 pyOpenSSL==19.1.0 cryptography==3.3.2
    zope.interface==4.6.0 jinja2==2.11.3 markupsafe==1.1.1 six==1.16.0 setuptools==44.0.0 service_identity==18.1.0
    unittest2==1.1.0 Werkzeug==1.0.1 klein==17.10.0
"""
START = """
import site, sys
site.addsitedir(sys.argv[1])
sys.argv = ["wstest", "-m", "fuzzingclient", "-s", sys.argv[2]]
from autobahntestsuite.wstest import run
run()
"""
NO_PYTHON = "The Autobahn suite needs Python 2.7 with pip. Use: make autobahn PYTHON2=/path/to/python2.7"


def python2() -> str | None:
    """Return a Python 2.7 that has pip, or None."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = os.environ.get("PYTHON2")
    for candidate in [named] if named else ["python2.7", "pypy", *map(str, versions.glob("*2.7*/bin/python2.7"))]:
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return found
    return None


def install(python: str, folder: Path) -> None:
    """Install the suite in a folder. It is installed alone: its own requirements name parts that need a compiler."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    for arguments in (REQUIREMENTS.split(), ["--no-deps", f"autobahntestsuite=={SUITE}"]):
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"The Autobahn suite could not be installed:\n{done.stderr}")


async def run(python: str, folder: Path, cases: list[str], kind: type[EchoConnection]) -> dict[str, Outcome]:
    """Run the cases; return their outcomes by name."""
    reports, log = folder / "reports", folder / "log"
    async with echoing(kind) as (port, _):
        server = {"agent": "greendot", "url": f"ws://127.0.0.1:{port}{PATH.decode()}"}
        options = {"outdir": str(reports), "servers": [server], "cases": cases}
        options |= {"exclude-cases": [], "exclude-agent-cases": {}}
        spec = folder / "spec.json"
        spec.write_text(json.dumps(options))
        with log.open("w") as output:
            suite = await asyncio.create_subprocess_exec(
                python, "-c", START, str(folder / "suite"), str(spec), cwd=folder, stdout=output, stderr=output
            )
            try:
                await asyncio.wait_for(suite.wait(), AT_MOST_S)
            finally:
                if suite.returncode is None:
                    suite.kill()
                    await suite.wait()
    index = reports / "index.json"
    if suite.returncode or not index.exists():
        sys.exit(f"The Autobahn suite ended with code {suite.returncode}:\n{log.read_text()[-3_000:]}")
    judged = json.loads(index.read_text())["greendot"]
    return {case: Outcome(one["behavior"], one["remoteCloseCode"]) for case, one in judged.items()}


def main() -> int:
    lifted = "--lifted" in sys.argv
    cases = [argument for argument in sys.argv[1:] if argument != "--lifted"]
    python = python2()
    if python is None:
        print(NO_PYTHON)
        return 2
    if lifted:
        lift_limits()
    run_cases = cases or ([f"{number}.*" for number in LIFTED] if lifted else ["*"])
    with tempfile.TemporaryDirectory(prefix="autobahn-") as name:
        folder = Path(name)
        print(f"→ installing the Autobahn suite {SUITE} in a temporary folder", flush=True)
        install(python, folder / "suite")
        print(f"→ running the cases {' '.join(run_cases)} of {TOTAL}", flush=True)
        found = asyncio.run(run(python, folder, run_cases, LimitlessConnection if lifted else EchoConnection))
    print(
        ", ".join(f"{count} {name}" for name, count in Counter(one.behaviour for one in found.values()).most_common())
    )
    if cases:
        for case, outcome in found.items():
            print(case, outcome.behaviour, outcome.code)
        return 0
    wrong = deviations(found, lifted=lifted)
    for line in wrong:
        print(line)
    if os.environ.get("WRITE"):
        PAGE.write_text(page())
    if not wrong:
        print(f"All cases have the outcome of {PAGE.relative_to(PAGE.parents[2])}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
