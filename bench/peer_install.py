"""Installation of the peers in pinned versions into bench/build/peers. A peer that cannot be installed is skipped."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import say
from serverd import Trouble, end, spawn

SOURCES = Path(__file__).resolve().parent / "peers"
NCHAN_MODULES = ("/usr/lib/nginx/modules/ngx_nchan_module.so", "/usr/lib64/nginx/modules/ngx_nchan_module.so")
NPM_S, PIP_S, GO_S = 120, 180, 400  # time limits


@dataclass(frozen=True)
class Home:
    """Folder of the installed peers."""

    folder: Path

    @property
    def node_modules(self) -> Path:
        return self.folder / "npm" / "node_modules"

    @property
    def bun(self) -> Path:
        return (self.node_modules / ".bin" / "bun").resolve()

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def centrifugo(self) -> Path:
        return self.folder / "centrifugo"


def install(home: Home, kinds: set[str]) -> dict[str, str]:
    """Install the packages of these kinds of peers. Return the kinds that failed, with the reason."""
    home.folder.mkdir(parents=True, exist_ok=True)
    missing = {}
    for kind, get in GETTERS.items():
        if kind not in kinds:
            continue
        try:
            get(home)
        except Trouble as trouble:
            missing[kind] = str(trouble)
    return missing


def _npm(home: Home) -> None:
    _need("node", "npm")
    with _once(home, "npm", [SOURCES / "package.json"]) as place:
        if place is None:
            return
        shutil.copy(SOURCES / "package.json", place)
        say("installing Bun, ws and Socket.IO (npm)")
        _run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"], place, NPM_S)
        _run([home.bun, "--version"], place, NPM_S)


def _pypi(home: Home) -> None:
    with _once(home, "venv", [SOURCES / "requirements.txt"]) as place:
        if place is None:
            return
        say("installing python-socketio and Django Channels (PyPI)")
        _run([sys.executable, "-m", "venv", place], home.folder, PIP_S)
        pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--requirement", SOURCES / "requirements.txt"], home.folder, PIP_S)


def _go(home: Home) -> None:
    _need("go")
    with _once(home, "go", sorted((SOURCES / "centrifugo").glob("go.*"))) as place:
        if place is None:
            return
        for name in ("go.mod", "go.sum", "tools.go"):
            shutil.copy(SOURCES / "centrifugo" / name, place)
        say("building Centrifugo (Go): about two minutes, once")
        caches = {"GOMODCACHE": str(place / "modules"), "GOCACHE": str(place / "cache"), "GOFLAGS": "-modcacherw"}
        command = ["go", "build", "-mod=readonly", "-o", home.centrifugo, "github.com/centrifugal/centrifugo/v5"]
        _run(command, place, GO_S, caches)
        for name in ("modules", "cache"):
            shutil.rmtree(place / name, ignore_errors=True)  # a gigabyte that is not needed again


def _debian(_: Home) -> None:
    _need("nginx")
    if nchan_module() is None:
        raise Trouble("nginx has no module nchan (Debian: libnginx-mod-nchan)")


def nchan_module() -> str | None:
    return next((path for path in NCHAN_MODULES if Path(path).exists()), None)


GETTERS: Mapping[str, Callable[[Home], None]] = {"npm": _npm, "pypi": _pypi, "debian": _debian, "go": _go}


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Trouble(f"`{program}` was not found")


class _once:
    """Folder for an installation, or None if the same version is installed. Only a completed installation counts."""

    def __init__(self, home: Home, name: str, sources: Sequence[Path]) -> None:
        self._place = home.folder / name
        self._stamp = home.folder / f"{name}.stamp"
        self._wanted = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()

    def __enter__(self) -> Path | None:
        if self._stamp.exists() and self._stamp.read_text() == self._wanted:
            return None
        self._stamp.unlink(missing_ok=True)
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        return self._place

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._stamp.write_text(self._wanted)


def _run(command: Sequence[object], folder: Path, within_s: float, more: Mapping[str, str] | None = None) -> None:
    environment = os.environ | (more or {})
    pipe = subprocess.PIPE
    process = spawn(
        command, None, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT
    )
    name = Path(str(command[0])).name
    try:
        said, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        raise Trouble(f"`{name}` did not end within {within_s:g} s") from None
    finally:
        end(process)
    if process.returncode:
        last = [line for line in said.splitlines() if line.strip()][-1:] or ["no output"]
        raise Trouble(f"`{name}` failed: {last[0].strip()[:200]}")
