"""Steps of `make release-check`: everything that a release does, except the upload."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

from compat.sources import UPGRADED, MissingHistoryError, extract
from release import artefacts, image_lock
from release.artefacts import CLIENTS, ROOT, Failed, run
from release.image_lock import EXTRAS, GLIBC, image_python
from release.quickstart import fetch, running, serving, try_server
from release.upgrade import Installation, build_previous, upgrade

PEERS = ("react", "react-dom", "@types/react", "vue", "ws")


class Table:
    """Results, one line for each step. A step that fails does not stop those after it."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._rows: list[tuple[str, str, float, str]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Run one step. The list takes what is worth a note in the table."""
        notes: list[str] = []
        begun = time.monotonic()
        result = "passed"
        print(f"→ {name}", flush=True)
        try:
            yield notes
        except Failed as error:
            result = "FAILED"
            self.failures.append(f"{name}: {error}")
        self._rows.append((name, result, time.monotonic() - begun, "; ".join(notes)))

    def skip(self, name: str, reason: str) -> None:
        self._rows.append((name, "skipped", 0.0, reason))

    def __str__(self) -> str:
        width = max(len(name) for name, *_ in self._rows)
        return "\n".join(
            f"{name:{width}}  {result:7}  {took:4.0f} s  {note}" for name, result, took, note in self._rows
        )


def check(folder: Path) -> int:
    """Build all artefacts into a folder and try them. Print a table; return the exit code."""
    os.environ["SOURCE_DATE_EPOCH"] = artefacts.epoch()  # also if a commit is made meanwhile
    table = Table()
    with tempfile.TemporaryDirectory(prefix="greendot-release-") as name:
        work = Path(name)
        with table.step("build all artefacts") as notes:
            built = artefacts.build_all(folder, work)
            notes.append(f"{len(built)} files, {sum(path.stat().st_size for path in built) // 1024:,} KB")
        if not table.failures:
            _try_artefacts(table, folder, work)
    print(f"\n{table}\n\nArtefacts: {folder}")
    for failure in table.failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if table.failures else 0


def _try_artefacts(table: Table, folder: Path, work: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    python = work / "sbom" / "bin" / "python"  # environment with the wheel alone
    with table.step("the same bytes from another folder") as notes:
        notes.append(compare_builds(folder, work / "again", python))
    with table.step("SBOM") as notes:
        notes.append(check_sboms(folder))
    with table.step("wheel: quickstart"), serving(python.parent / "greendot", cwd=work / "wheel") as address:
        try_server(python, address, work / "wheel")
    with table.step("sdist: quickstart"):
        built = artefacts.environment(work / "sdist-venv", sdist)
        with serving(built.parent / "greendot", cwd=work / "sdist") as address:
            try_server(built, address, work / "sdist")
    for version in UPGRADED:
        with table.step(f"upgrade from {version}") as notes:
            notes.append(_try_upgrade(version, wheel, work / f"upgrade-{version}"))
    with table.step("uvx greendot serve --dev"):
        _try_runner(["uvx", "--from", str(wheel), "greendot"], python, work, _uv_settings(work))
    with table.step("pipx run greendot serve --dev"):
        settings = {name: str(work / "pipx" / name.lower()) for name in ("PIPX_HOME", "PIPX_BIN_DIR")}
        _try_runner(["pipx", "run", "--no-cache", "--spec", str(wheel), "greendot"], python, work, settings)
    with table.step("npm packages: READMEs and sizes") as notes:
        notes.append(try_npm(folder, work / "npm", python, registry=True))
    with table.step("image: its command, without a container"):
        try_image_command(python.parent / "greendot", work / "image")
    with table.step("image: hadolint and wheels") as notes:
        notes.append(check_image())
    table.skip("image: build", "needs a Docker engine; the release workflow builds it for amd64 and arm64")


def _try_upgrade(version: str, wheel: Path, work: Path) -> str:
    """Install an earlier version with its own dependencies, and upgrade it while clients are connected."""
    try:
        source = extract(version, work / "source")
    except MissingHistoryError as error:
        raise Failed(str(error)) from None
    previous = build_previous(source, version, work / "wheel")
    (work / "installation").mkdir()
    return upgrade(Installation(work / "installation", previous, registry=True), wheel)


def _try_runner(command: list[str], python: Path, work: Path, settings: dict[str, str]) -> None:
    """Start the server with a program that installs it first. It runs from the wheel, not from this environment."""
    program = Path(sys.executable).parent / command[0]
    # Names of the programs only: in this environment's folder there is a `greendot` too.
    with serving(program, *command[1:], cwd=work / command[0], PATH="/usr/bin:/bin", **settings) as address:
        try_server(python, address, work / command[0])


def _uv_settings(work: Path) -> dict[str, str]:
    """Return uv's settings: an empty cache, this Python, and the index of pip, if that is not the default one."""
    settings = {"UV_CACHE_DIR": str(work / "uv"), "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    index = os.environ.get("PIP_INDEX_URL") or _pip_setting("global.index-url")
    return settings | ({"UV_DEFAULT_INDEX": index} if index else {})


def _pip_setting(name: str) -> str:
    command = [sys.executable, "-m", "pip", "config", "get", name]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()


# --- reproducibility ---


def compare_builds(folder: Path, work: Path, python: Path) -> str:
    """Build again from a copy with other times and modes, in another folder. Raise Failed if a byte differs.

    `python` is that of an environment with the wheel alone.
    """
    work.mkdir()
    source = copy_source(work / "source")
    artefacts.build_python(work / "dist", source)
    artefacts.build_npm(work / "dist")
    artefacts.build_sboms(work / "dist", python)
    compared = sorted((work / "dist").iterdir())
    different = [path.name for path in compared if path.read_bytes() != (folder / path.name).read_bytes()]
    if different:
        raise Failed(f"these artefacts differ from a second build of the same source: {', '.join(different)}")
    return f"{len(compared)} files"


def copy_source(folder: Path) -> Path:
    """Copy the tracked files with other times and modes, as another machine has them. Programs stay executable."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        target = folder / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
            target.chmod(0o700 if os.access(ROOT / name, os.X_OK) else 0o600)
            os.utime(target, (1_000_000_000, 1_000_000_000))
    return folder


def check_sboms(folder: Path) -> str:
    """Check the SBOMs against the schema, and that the one of the Python package has all its requirements."""
    sboms = sorted(folder.glob("*.cdx.json"))
    for sbom in sboms:
        artefacts.check_sbom(sbom)
    (python,) = (sbom for sbom in sboms if re.match(r"greendot-\d", sbom.name))
    names = {name.lower().replace("_", "-") for name in artefacts.components(python)}
    if missing := artefacts.requirements() - names:
        raise Failed(f"{python.name} lacks {', '.join(sorted(missing))}")
    return f"{len(sboms)} documents, {len(names)} Python packages"


# --- npm ---


def try_npm(folder: Path, work: Path, python: Path, *, registry: bool) -> str:
    """Install the npm packages in an empty folder. Run their READMEs against a dev server and compare their sizes.

    Without `registry`, React and `ws` are those of clients/node_modules, and nothing is downloaded.
    """
    work.mkdir(parents=True)
    (work / "package.json").write_text('{"private": true, "type": "module"}\n')
    tarballs = sorted(folder.glob("greendot-*.tgz"))
    if registry:
        run("npm", "install", "--no-audit", "--no-fund", *tarballs, *PEERS, cwd=work)
    else:
        _unpack_npm(tarballs, work / "node_modules")
    with serving(python.parent / "greendot", cwd=work / "server") as address:
        data = work / "server" / ".greendot"
        sizes = json.loads(run("node", "installed.mjs", work, address, data, cwd=CLIENTS, timeout_s=180))
    return ", ".join(
        f"{name} {size['bytes']:,} bytes gzipped{_verdict(size['bytes'], size['target'])}"
        for name, size in sizes.items()
    )


def _verdict(size: int, target: int) -> str:
    return "" if size <= target else f" (target {target:,}: not reached)"


def _unpack_npm(tarballs: list[Path], modules: Path) -> None:
    for tarball in tarballs:
        package = modules / "@greendot" / tarball.name.split("-")[1]
        with tarfile.open(tarball) as archive, tempfile.TemporaryDirectory(dir=modules.parent) as name:
            archive.extractall(name, filter="data")
            shutil.copytree(Path(name) / "package", package)
    for name in PEERS:
        found = next(
            (path for base in ("react", ".") if (path := CLIENTS / base / "node_modules" / name).exists()), None
        )
        if found is None:
            raise Failed(f"{name} is not in clients/node_modules. Run: npm ci in clients/")
        (modules / name).parent.mkdir(parents=True, exist_ok=True)
        (modules / name).symlink_to(found)


# --- image ---


def check_image() -> str:
    """Lint the Dockerfile, and check that pip finds the locked wheels, by their hashes, for each architecture."""
    run(Path(sys.executable).parent / "hadolint", "--failure-threshold", "style", ROOT / "Dockerfile")
    version = image_python()
    files = [word for name in ("base", *EXTRAS) for word in ("--requirement", image_lock.FOLDER / f"{name}.txt")]
    for architecture in image_lock.ARCHITECTURES:
        platforms = [word for minor in GLIBC for word in ("--platform", f"manylinux_2_{minor}_{architecture}")]
        with tempfile.TemporaryDirectory() as target:
            command = ["install", "--dry-run", "--quiet", "--require-hashes", "--only-binary", ":all:"]
            command += ["--no-deps", "--target", target, "--python-version", version]
            run(sys.executable, "-m", "pip", *command, *platforms, *files)
    architectures = " and ".join(image_lock.ARCHITECTURES)
    return f"locked wheels of Python {version} for {architectures} (this machine: {platform.machine()})"


def try_image_command(greendot: Path, work: Path) -> None:
    """Run `greendot --dev` with the environment of the image. The demo must require the printed gate token."""
    work.mkdir()
    (found,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    given = dict(word.split("=", 1) for word in found.replace("\\\n", " ").split())
    given |= {"PATH": os.environ["PATH"], "GREENDOT_SERVER_DATA_DIR": str(work)}
    with running(greendot, "--dev", "--port", "0", cwd=work, **given) as lines:
        opened = lines.until(re.compile(r"Open  (http://127\.0\.0\.1:\d+)/\?gate=([\w-]+)  "), 30)
        address, gate = opened[1], opened[2]
        try:
            fetch(f"{address}/dev/token?user=alice")
        except HTTPError as error:
            with error:
                if error.code != 401:
                    raise Failed(f"/dev/token without the gate token answered {error.code}, not 401") from None
        else:
            raise Failed("/dev/token needs no gate token, although the server listens on all addresses")
        if b"token" not in fetch(f"{address}/dev/token?user=alice&gate={gate}"):
            raise Failed("/dev/token gives no token with the gate token")
