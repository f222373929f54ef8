"""Artefacts of a release: wheel, sdist, npm packages, SBOMs and checksums. The same commit gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from greendot import __version__

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "clients"
PACKAGES = ("js", "react", "vue", "server")  # workspaces that are published
FALLBACK_EPOCH = 315532800  # 1980: the earliest time that a wheel can contain
SUMS = "SHA256SUMS"


class Failed(Exception):
    """A step of the release failed. The text has the command and its output."""


def run(*command: str | Path, cwd: Path = ROOT, timeout_s: float = 600, **environment: str) -> str:
    """Run a program and return its output. Raise Failed if it fails."""
    words = [str(part) for part in command]
    # scripts/ensure-node installs Node.js here, if the machine has none.
    path = {"PATH": f"{Path(sys.prefix, 'node')}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=os.environ | path | environment, capture_output=True, text=True, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(words)}: {error}") from None
    if done.returncode:
        raise Failed(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def epoch() -> str:
    """Return the time that all artefacts contain: SOURCE_DATE_EPOCH, or the time of the commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    try:
        return run("git", "log", "-1", "--format=%ct").strip()
    except Failed:
        return str(FALLBACK_EPOCH)


def build_python(folder: Path, source: Path = ROOT, *, sdist: bool = True) -> list[Path]:
    """Build the wheel, and by default the sdist, from the source. Return the files."""
    kinds = ["--wheel", *(["--sdist"] if sdist else [])]
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", folder, source]
    run(*command, SOURCE_DATE_EPOCH=epoch())
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])


def build_npm(folder: Path) -> list[Path]:
    """Build the npm packages. Needs `npm ci` in clients/. Return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    # `prepare` of a package would build once more.
    for name in PACKAGES:
        run("node", "build.mjs", cwd=CLIENTS / name)
    chosen = [word for name in PACKAGES for word in ("--workspace", name)]
    packed = run("npm", "pack", "--json", "--ignore-scripts", "--pack-destination", folder, *chosen, cwd=CLIENTS)
    found = json.loads(packed)
    return sorted(folder / one["filename"] for one in (found.values() if isinstance(found, dict) else found))


# --- SBOM ---


def sbom_python(folder: Path, python: Path) -> Path:
    """Write the SBOM of the Python package with all packages of an environment that has nothing else."""
    command = ["-m", "cyclonedx_py", "environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible"]
    sbom = json.loads(run(sys.executable, *command, python))
    (wheel,) = folder.glob("*.whl")
    # The package itself is the subject of the document, with the hash of the wheel; not a component of itself.
    sbom["components"] = [part for part in sbom["components"] if part["name"] != "greendot"]
    sbom["metadata"]["component"] |= {"version": __version__, "hashes": [_hash(wheel)]}
    return _write_sbom(folder / f"greendot-{__version__}.cdx.json", sbom)


def sbom_npm(folder: Path, package: str) -> Path:
    """Write the SBOM of an npm package: the packages that an installation adds, without tools and peers.

    `npm sbom` describes the whole workspace with its test tools, and names packages by their folders.
    """
    own = json.loads((CLIENTS / package / "package.json").read_text())
    lock = json.loads((CLIENTS / "package-lock.json").read_text())["packages"]
    found: dict[str, dict[str, Any]] = {}
    waiting = [*own.get("dependencies", {})]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = lock[f"node_modules/{name}"]
            waiting += found[name].get("dependencies", {})
    (tarball,) = folder.glob(f"{_file_name(own['name'])}-{own['version']}.tgz")
    subject = _component(own["name"], own) | {"hashes": [_hash(tarball)]}
    parts = [_component(name, found[name]) for name in sorted(found)]
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": parts,
        "dependencies": [{"ref": subject["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    return _write_sbom(folder / f"{_file_name(own['name'])}-{own['version']}.cdx.json", sbom)


def _file_name(package: str) -> str:
    return package.removeprefix("@").replace("/", "-")


def _component(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    purl = f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}"
    licence = [{"license": {"id": entry["license"]}}] if "license" in entry else []
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": entry["version"],
        "purl": purl,
        "licenses": licence,
    }


def _hash(path: Path) -> dict[str, str]:
    return {"alg": "SHA-512", "content": hashlib.sha512(path.read_bytes()).hexdigest()}


def _write_sbom(path: Path, sbom: dict[str, Any]) -> Path:
    """Write an SBOM with the time of the commit, and a serial number that depends on its content only."""
    sbom.pop("serialNumber", None)
    moment = datetime.fromtimestamp(int(epoch()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sbom.setdefault("metadata", {})["timestamp"] = moment
    content = json.dumps(sbom, sort_keys=True)
    sbom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    path.write_text(json.dumps(sbom, indent=2, sort_keys=True) + "\n")
    return path


def check_sbom(path: Path) -> None:
    """Raise Failed if an SBOM does not match the schema of CycloneDX."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    version = SchemaVersion.from_version(json.loads(path.read_text())["specVersion"])
    if error := JsonStrictValidator(version).validate_str(path.read_text()):
        raise Failed(f"{path.name} does not match the schema of CycloneDX: {error}")


def components(sbom: Path) -> set[str]:
    """Return the names of the components of an SBOM."""
    return {one["name"] for one in json.loads(sbom.read_text()).get("components", [])}


def requirements() -> set[str]:
    """Return the names of the packages that the Python package requires, in the form of the index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = (
        "".join(c if c.isalnum() or c in "-_." else " " for c in each).split()[0] for each in project["dependencies"]
    )
    return {name.lower().replace("_", "-") for name in names}


# --- all of them ---


def environment(folder: Path, *packages: str | Path) -> Path:
    """Create a virtual environment with these packages alone, not even pip. Return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, *packages)
    return python


def checksums(folder: Path) -> Path:
    """Write the checksums of all files, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))
    return folder / SUMS


def build_all(folder: Path, work: Path) -> list[Path]:
    """Build everything that a release publishes, except the image, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build_python(folder)
    if not (CLIENTS / "node_modules" / ".package-lock.json").exists():
        run("npm", "ci", cwd=CLIENTS)
    build_npm(folder)
    (wheel,) = folder.glob("*.whl")
    sbom_python(folder, environment(work / "sbom", wheel))
    for package in PACKAGES:
        sbom_npm(folder, package)
    checksums(folder)
    return sorted(folder.iterdir())
