"""Artefacts of a release: wheel, sdist, npm packages, SBOMs and checksums. The same commit gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from greendot import __version__
from release import image_lock
from release.steps import ROOT, Failed, run

CLIENTS = ROOT / "clients"
PACKAGES = ("js", "react", "vue", "server")  # workspaces that are published
FALLBACK_EPOCH = 315532800  # 1980: the earliest time that a wheel can contain
SUMS = "SHA256SUMS"


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
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    # The package itself is the subject of the document, with the hashes of wheel and sdist; not a component of itself.
    sbom["components"] = [part for part in sbom["components"] if part["name"] != "greendot"]
    subject = sbom["metadata"]["component"]
    subject |= {"version": __version__, "purl": f"pkg:pypi/greendot@{__version__}", "hashes": [_hash(files[0])]}
    subject.setdefault("externalReferences", []).extend(_distribution(path) for path in files)
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
    needs = {subject["bom-ref"]: [part["bom-ref"] for part in parts]}
    return _write_sbom(
        folder / f"{_file_name(own['name'])}-{own['version']}.cdx.json", _document(subject, parts, needs)
    )


def sbom_image(folder: Path, base: tuple[str, str]) -> Path:
    """Write the SBOM of the image: its base (name, and digest if known), and the locked packages, without extras.

    The base is one component, because its digest determines its packages of Debian.
    """
    (wheel,) = folder.glob("*.whl")
    own = _python_component("greendot", __version__) | {"hashes": [_hash(wheel)]}
    locked = [*image_lock.read_lock("base")]
    refs = {one.name: f"pkg:pypi/{one.name}@{one.version}" for one in locked} | {"greendot": own["bom-ref"]}
    parts = [_base_component(*base), own]
    for one in locked:
        files = [
            {"type": "distribution", "url": file, "hashes": [{"alg": "SHA-256", "content": found}]}
            for file, found in one.wheels.items()
        ]
        parts.append(_python_component(one.name, one.version) | {"externalReferences": files})
    subject = {"type": "container", "bom-ref": "image", "name": "greendot", "version": __version__}
    needs = {"image": [parts[0]["bom-ref"], own["bom-ref"]]} | {ref: [] for ref in refs.values()}
    for one in locked:
        for by in one.via:
            needs[refs[by]].append(refs[one.name])
    return _write_sbom(folder / f"greendot-image-{__version__}.cdx.json", _document(subject, parts, needs))


def _document(subject: dict[str, Any], parts: list[dict[str, Any]], needs: dict[str, list[str]]) -> dict[str, Any]:
    """Return an SBOM. `needs` has the references that each reference depends on."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": parts,
        "dependencies": [{"ref": ref, "dependsOn": sorted(some)} for ref, some in sorted(needs.items())],
    }


def _base_component(name: str, digest: str) -> dict[str, Any]:
    image, _, tag = name.partition(":")
    purl = f"pkg:docker/{image}@{tag}"
    hashes = [{"alg": "SHA-256", "content": digest.rpartition(":")[2]}] if digest else []
    return {"type": "container", "bom-ref": purl, "name": image, "version": tag, "purl": purl, "hashes": hashes}


def _python_component(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def build_sboms(folder: Path, python: Path) -> None:
    """Write the SBOMs of all artefacts in a folder. `python` is that of an environment with the wheel alone."""
    sbom_python(folder, python)
    for package in PACKAGES:
        sbom_npm(folder, package)
    sbom_image(folder, image_base())


def image_base() -> tuple[str, str]:
    """Return name and digest of the image's base. The digest is that of GREENDOT_BASE_DIGEST, or empty."""
    version = image_lock.base_version()
    return f"python:{version}-slim-bookworm", os.environ.get("GREENDOT_BASE_DIGEST", "")


def _distribution(path: Path) -> dict[str, Any]:
    return {"type": "distribution", "url": path.name, "hashes": [_hash(path)]}


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
    # The versions of the image, so that the same commit gives the same SBOM.
    constraints = work / "constraints.txt"
    constraints.write_text("".join(f"{one.name}=={one.version}\n" for one in image_lock.read_lock("base")))
    build_sboms(folder, environment(work / "sbom", "--constraint", constraints, wheel))
    checksums(folder)
    return sorted(folder.iterdir())
