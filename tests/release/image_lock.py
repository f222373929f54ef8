"""Lock files of the image in deploy/image: exact versions, with hashes of wheels for amd64 and arm64."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.steps import ROOT, Failed, run

FOLDER = ROOT / "deploy" / "image"
ARCHITECTURES = ("x86_64", "aarch64")
GLIBC = (36, 34, 31, 28, 27, 26, 24, 17, 12, 5)  # 2.36 is that of Debian 12
EXTRAS = ("local", "otel", "protobuf")  # of the image: `--build-arg EXTRAS=local,otel`
HEAD = "# {} Written by `make lock-image`, not by hand. A wheel for each architecture.\n"


class Locked(NamedTuple):
    """Locked package: the wheel and its SHA-256 of each architecture, and the packages that require it."""

    name: str
    version: str
    wheels: dict[str, str]  # name of a wheel → hash
    via: list[str]


Wheels = dict[str, dict[str, Any]]  # name of a package → its entry in a report of pip


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def roots() -> dict[str, list[str]]:
    """Return the requirements of each lock file: of the build, of the package, and of the package with each extra."""
    found = project()
    base, extras = found["project"]["dependencies"], found["project"]["optional-dependencies"]
    return {"build": found["build-system"]["requires"], "base": base} | {
        name: [*base, *extras[name]] for name in EXTRAS
    }


def write_locks(folder: Path = FOLDER) -> list[Path]:
    """Resolve all requirements together for each architecture, and write the lock files. Return them."""
    version = image_python()
    if version != f"{sys.version_info[0]}.{sys.version_info[1]}":
        raise Failed(f"pip evaluates conditions for its own Python: run make lock-image with Python {version}")
    wanted = roots()
    together = sorted({each for name, some in wanted.items() if name != "build" for each in some})
    build = {one: resolve(wanted["build"], one, version) for one in ARCHITECTURES}
    image = {one: resolve(together, one, version) for one in ARCHITECTURES}
    folder.mkdir(exist_ok=True)
    for name, some in wanted.items():
        text = render(name, select(some, build if name == "build" else image))
        (folder / f"{name}.txt").write_text(text)
    return [folder / f"{name}.txt" for name in wanted]


def resolve(requirements: list[str], architecture: str, version: str) -> Wheels:
    """Return the newest wheels that fit each other, as pip finds them for an architecture. Nothing is installed."""
    platforms = [word for minor in GLIBC for word in ("--platform", f"manylinux_2_{minor}_{architecture}")]
    with tempfile.TemporaryDirectory() as work:
        report = Path(work, "report.json")
        command = ["install", "--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check"]
        command += ["--only-binary", ":all:", "--target", work, "--python-version", version, *platforms]
        run(sys.executable, "-m", "pip", *command, "--report", report, *requirements)
        found = json.loads(report.read_text())["install"]
    return {canonicalize_name(one["metadata"]["name"]): one for one in found}


def select(requirements: list[str], reports: dict[str, Wheels]) -> list[Locked]:
    """Return the packages that the requirements need, directly or not. Raise Failed if architectures differ."""
    found: dict[str, Locked] = {}
    for architecture, wheels in reports.items():
        for name, via in closure(requirements, wheels, architecture).items():
            one = wheels[name]
            version = one["metadata"]["version"]
            locked = found.setdefault(name, Locked(name, version, {}, sorted(via)))
            if (locked.version, locked.via) != (version, sorted(via)):
                raise Failed(f"{name} differs between {' and '.join(reports)}: {locked.version} and {version}")
            archive = one["download_info"]
            locked.wheels[archive["url"].rpartition("/")[2]] = archive["archive_info"]["hashes"]["sha256"]
    return [found[name] for name in sorted(found)]


def closure(requirements: list[str], wheels: Wheels, architecture: str) -> dict[str, set[str]]:
    """Return each needed package, with those that require it. Conditions are those of the architecture."""
    found: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "greendot", "") for text in requirements]
    while waiting:
        wanted, by, extra = waiting.pop()
        if wanted.marker and not wanted.marker.evaluate({"platform_machine": architecture, "extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        if name not in wheels:
            raise Failed(f"{by} needs {wanted} on {architecture}, which pip has not found")
        found.setdefault(name, set()).add(by)
        for one in ("", *sorted(wanted.extras)):
            if (name, one) not in seen:
                seen.add((name, one))
                needs = wheels[name]["metadata"].get("requires_dist", ())
                waiting += [(Requirement(text), name, one) for text in needs]
    return found


def render(name: str, packages: list[Locked]) -> str:
    """Return a file of requirements for `pip install --require-hashes`."""
    what = {"base": "Packages of the image.", "build": "Packages that build the wheel in the image."}
    lines = [HEAD.format(what.get(name, f"Packages of the image with the extra `{name}`."))]
    for one in packages:
        lines += [f"\n# {wheel}" for wheel in sorted(one.wheels)]
        hashes = [f" \\\n    --hash=sha256:{one.wheels[wheel]}" for wheel in sorted(one.wheels)]
        lines.append(f"\n{one.name}=={one.version}{''.join(hashes)}")
        lines.append(f"\n    # via {', '.join(one.via)}\n")
    return "".join(lines)


def read_lock(name: str, folder: Path = FOLDER) -> Iterator[Locked]:
    """Yield the packages of a lock file. The hashes have the order of the wheels."""
    pattern = r"((?:^# \S+\.whl\n)+)^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n    # via (.+)$"
    for files, package, version, hashes, via in re.findall(pattern, (folder / f"{name}.txt").read_text(), re.MULTILINE):
        wheels = dict(zip(re.findall(r"# (\S+)\n", files), re.findall(r"[0-9a-f]{64}", hashes), strict=True))
        yield Locked(package, version, wheels, via.split(", "))


def base_version() -> str:
    """Return the version of Python that the base of the image has, such as 3.13.1."""
    found = re.search(r"^ARG PYTHON=(\d+\.\d+\.\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    if found is None:
        raise Failed("the Dockerfile has no exact version of its base. Write: ARG PYTHON=X.Y.Z")
    return found[1]


def image_python() -> str:
    """Return the Python version of the image without its last number, such as 3.13."""
    return base_version().rpartition(".")[0]
