"""Helm chart as helm renders it, for each `*.values.yaml` in charts/. The rendered manifests are committed.

As a program it renders them again: make charts WRITE=1.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "greendot"
FOLDER = Path(__file__).parent / "charts"
CASES = sorted(path.name.removesuffix(".values.yaml") for path in FOLDER.glob("*.values.yaml"))
RENDERED_FROM = FOLDER / "rendered-from"
KUBERNETES = "1.31.0"


def helm() -> str | None:
    """Return the path of helm: the wheel's, which rendered the committed manifests, else the machine's."""
    return shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")


def fingerprint() -> str:
    """Return a hash of all inputs of the rendering."""
    digest = hashlib.sha256()
    for path in sorted(path for path in (*CHART.rglob("*"), *FOLDER.glob("*.values.yaml")) if path.is_file()):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def render(program: str, case: str) -> str:
    values = str(FOLDER / f"{case}.values.yaml")
    subprocess.run(
        [program, "lint", "--strict", "--quiet", "--kube-version", KUBERNETES, "-f", values, str(CHART)], check=True
    )
    done = attempt(program, "-f", values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attempt(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program, "template", "rt", str(CHART), "--namespace", "chat", "--kube-version", KUBERNETES, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


def rendered(case: str) -> list[dict[str, Any]]:
    """Return the objects of the committed manifest."""
    return [each for each in yaml.safe_load_all((FOLDER / f"{case}.yaml").read_text()) if each]


def main() -> None:
    program = helm()
    if program is None:
        sys.exit("helm is missing: its wheel is for Linux on x86-64; install helm 3 and run this again")
    for case in CASES:
        (FOLDER / f"{case}.yaml").write_text(render(program, case))
    RENDERED_FROM.write_text(f"{fingerprint()}\n")


if __name__ == "__main__":
    main()
