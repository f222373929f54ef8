"""Wheel and sdist: both are complete, and a server installed from the wheel serves its pages."""

from __future__ import annotations

import configparser
import email
import re
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest

from deployed.programs import ROOT, said
from greendot import __version__
from release.artefacts import build_python
from release.check import copy_source
from release.quickstart import run_readme
from unpacking import unpack

SOURCE = ROOT / "src" / "greendot"
PAGES = {
    "/": "text/html",
    "/admin": "text/html",
    "/openapi.json": "application/json",
    "/greendot.js": "text/javascript",
    "/greendot-push.js": "text/javascript",
    "/greendot-sse.js": "text/javascript",
    "/greendot-sw.js": "text/javascript",
}


class Built(NamedTuple):
    """Built wheel and sdist."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    build_python(folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> Message:
    return email.message_from_bytes(contents(wheel)[f"greendot-{__version__}.dist-info/METADATA"])


def test_every_file_of_the_package_is_in_the_wheel_and_nothing_else(built: Built) -> None:
    here = {
        f"greendot/{path.relative_to(SOURCE)}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in contents(built.wheel) if ".dist-info/" not in name}
    assert packed == here
    # The comparison is useful only if the package contains data files.
    for part in ("web/index.html", "web/admin/index.html", "engine/redis/lua/enter.lua", "py.typed"):
        assert f"greendot/{part}" in packed
    for store in ("sqlite", "postgres"):
        assert any(name.startswith(f"greendot/store/schema/{store}/") for name in packed)


def test_the_sdist_has_what_a_wheel_is_built_from_and_no_more_than_its_readers_want(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"src", "deploy", "docs", "Dockerfile", "CHANGELOG.md", "README.md", "LICENSE", "pyproject.toml"} | {
        "PKG-INFO",
        ".gitignore",  # hatchling reads it for a build
    }
    assert not any(re.search(r"\.(pyc|db|env)$|/\.greendot/", name) for name in names - {"deploy/compose/example.env"})


def test_a_wheel_built_from_the_sdist_has_the_same_bytes(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        unpack(archive, tmp_path)
    source = tmp_path / built.sdist.name.removesuffix(".tar.gz")
    (again,) = build_python(tmp_path / "dist", source, sdist=False)
    assert again.read_bytes() == built.wheel.read_bytes()


def test_an_sdist_built_from_files_with_other_times_and_modes_has_the_same_bytes(built: Built, tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this folder is not a git clone")
    build_python(tmp_path / "dist", copy_source(tmp_path / "source"))
    (sdist,), (wheel,) = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    # Without the bytes themselves: pytest would compare them for minutes.
    for ours, theirs in ((sdist, built.sdist), (wheel, built.wheel)):
        is_equal = ours.read_bytes() == theirs.read_bytes()
        assert is_equal, ours.name


def test_the_metadata_of_the_wheel_has_name_version_license_and_requirements(built: Built) -> None:
    said = metadata(built.wheel)
    assert (said["Name"], said["Version"]) == ("greendot", __version__)
    assert said["Requires-Python"] == ">=3.11"
    assert (said["License-Expression"], said["License-File"]) == ("Apache-2.0", "LICENSE")
    assert said["Description-Content-Type"] == "text/markdown"
    classifiers = said.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    # The license expression replaces the classifier.
    assert not [each for each in classifiers if each.startswith("License ::")]
    extras = set(said.get_all("Provides-Extra", []))
    assert {"dev", "release", "bench", "examples", "django", "fastapi"} <= extras
    needed = [each for each in said.get_all("Requires-Dist", []) if "extra ==" not in each]
    # A server must not depend on test tools.
    assert not [each for each in needed if re.match(r"pytest|hypothesis|mypy|ruff|playwright", each)]
    scripts = configparser.ConfigParser()
    scripts.read_string(contents(built.wheel)[f"greendot-{__version__}.dist-info/entry_points.txt"].decode())
    assert dict(scripts["console_scripts"]) == {"greendot": "greendot.cli:main"}


@contextmanager
def installed_server(wheel: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Install the wheel into its own environment with borrowed dependencies. Yield the site folder and the server's
    address.
    """
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    said(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # Python adds the path in this .pth file to the module path, but does not read .pth files there (such as the
    # clone's).
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [folder / "venv" / "bin" / "greendot", "serve", "--dev", "--port", "0"]
    server = subprocess.Popen(
        command, cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if found := re.search(r"Open  (http://127\.0\.0\.1:\d+)/", line):
                yield site, found[1]
                break
        else:
            pytest.fail("".join(lines))
    finally:
        server.terminate()
        server.communicate(timeout=20)


def fetched(url: str) -> tuple[str, bytes]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return answer.headers["content-type"], answer.read()


def test_a_server_installed_from_the_wheel_shows_demo_dashboard_and_api_far_from_the_repository(
    built: Built, tmp_path: Path
) -> None:
    with installed_server(built.wheel, tmp_path) as (site, server):
        for path, kind in PAGES.items():
            assert fetched(server + path)[0].startswith(kind), path
        # Not the clone's package, which is in this environment, too.
        where = said(
            tmp_path / "venv" / "bin" / "python", "-c", "import greendot; print(greendot.__file__)", PYTHONPATH=""
        )
        assert Path(where.strip()) == site / "greendot" / "__init__.py"
        # The README in the wheel: its client as two users, and its backend, from the same environment.
        run_readme(tmp_path / "venv" / "bin" / "python", server, tmp_path)
        # All files that a page loads are served, including indirect ones.
        waiting, seen = ["/", "/admin"], set()
        while waiting:
            path = waiting.pop()
            seen.add(path)
            kind, body = fetched(server + path)
            if kind.startswith(("text/html", "text/javascript", "text/css")):
                waiting += [each for each in loaded(path, body.decode()) if each not in seen]
        assert {"/app.js", "/greendot.js", "/tokens.css", "/admin/app.js"} <= seen


def loaded(path: str, text: str) -> list[str]:
    """Return the addresses on this server that a page, stylesheet or module refers to."""
    named = re.findall(r"""(?:src|href)="([^":#]+)"|from "([^"]+)"|import "([^"]+)"|import\("([^"]+)"\)""", text)
    folder = path if path.endswith("/") else path.rpartition("/")[0] + "/"
    return [
        urllib.request.urljoin(f"http://here{folder}", address).removeprefix("http://here")  # type: ignore[attr-defined]
        for address in (next(filter(None, each)) for each in named)
        if not address.startswith("http")
    ]
