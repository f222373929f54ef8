"""Lock files of the image: complete, equal to the requirements, and with hashes for both architectures. SBOMs."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from deployed.programs import ROOT
from release.artefacts import check_sbom, sbom_image, sbom_npm
from release.image_lock import ARCHITECTURES, EXTRAS, FOLDER, GLIBC, closure, read_lock, render, roots, select
from release.steps import Failed

NAMES = ("base", *EXTRAS, "build")
lock_names = pytest.mark.parametrize("name", NAMES)


def versions(name: str) -> dict[str, str]:
    return {one.name: one.version for one in read_lock(name)}


@lock_names
def test_a_lock_has_exactly_the_packages_that_are_required(name: str) -> None:
    locked = {one.name: one for one in read_lock(name)}
    wanted = [Requirement(text) for text in roots()[name]]
    assert {canonicalize_name(each.name) for each in wanted} == {
        one.name for one in locked.values() if "greendot" in one.via
    }, "run: make lock-image"
    for each in wanted:
        assert each.specifier.contains(locked[canonicalize_name(each.name)].version), f"{each}; run: make lock-image"
    for one in locked.values():
        assert {*one.via} <= locked.keys() | {"greendot"}, one.name


@lock_names
def test_the_packages_of_locked_packages_are_locked(name: str) -> None:
    """Compare with the metadata of installed packages that have the locked version."""
    locked = versions(name)
    for package, version in locked.items():
        try:
            found = distribution(package)
        except PackageNotFoundError:
            continue
        if found.version == version:
            for text in found.requires or ():
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({"extra": ""}):
                    assert canonicalize_name(need.name) in locked, f"{package} needs {need}"


def test_a_package_has_one_version_in_all_locks_of_the_image() -> None:
    base = versions("base")
    for name in EXTRAS:
        extra = versions(name)
        assert base.items() <= extra.items(), name
        assert extra.keys() > base.keys(), name
    every = {item for name in NAMES[:-1] for item in versions(name).items()}
    assert len({package for package, _ in every}) == len(every)


def test_every_locked_package_has_a_wheel_with_a_hash_for_each_architecture() -> None:
    for name in NAMES:
        text = (FOLDER / f"{name}.txt").read_text()
        assert len([*read_lock(name)]) == len(re.findall(r"^[^#\s]", text, re.MULTILINE)), name
        for one in read_lock(name):
            platforms = set()
            for wheel, found in one.wheels.items():
                assert re.fullmatch(r"[0-9a-f]{64}", found)
                package, version, _, tags = parse_wheel_filename(wheel)
                assert (package, str(version)) == (one.name, one.version)
                platforms |= {tag.platform for tag in tags}
            if platforms != {"any"}:
                fitting = {f"manylinux_2_{minor}_{arch}" for minor in GLIBC for arch in ARCHITECTURES}
                for architecture in ARCHITECTURES:
                    assert [each for each in platforms & fitting if each.endswith(architecture)], one.name


def test_no_index_and_no_option_is_in_a_lock() -> None:
    for name in NAMES:
        for line in (FOLDER / f"{name}.txt").read_text().splitlines():
            assert re.fullmatch(r"|# .*|    # via .*|    --hash=sha256:\w{64}( \\)?|[a-z0-9-]+==\S+ \\", line), line


# --- writing a lock ---


def wheel(name: str, version: str = "1.0", tag: str = "py3-none-any", *needs: str) -> dict[str, Any]:
    """Return an entry of pip's report."""
    file = f"{name.replace('-', '_')}-{version}-{tag}.whl"
    return {
        "metadata": {"name": name, "version": version, "requires_dist": [*needs]},
        "download_info": {
            "url": f"https://index.example/{file}",
            "archive_info": {"hashes": {"sha256": f"{abs(hash(file)):064x}"[-64:]}},
        },
    }


def reports(**more: str) -> dict[str, dict[str, Any]]:
    return {
        arch: {
            "a": wheel(
                "A", "1.0", "py3-none-any", "fast-b[x]>=1", "c; extra == 'unused'", "d; platform_machine == 'x'"
            ),
            "fast-b": wheel("Fast_B", "2.0", f"cp311-cp311-manylinux_2_17_{arch}", "e; extra == 'x'"),
            "e": wheel("e", more.get(arch, "3.0")),
            "unneeded": wheel("unneeded"),
        }
        for arch in ARCHITECTURES
    }


def test_a_lock_has_the_needed_packages_with_the_wheels_of_both_architectures(tmp_path: Path) -> None:
    packages = select(["A>=1"], reports())
    assert [(one.name, one.version, one.via, len(one.wheels)) for one in packages] == [
        ("a", "1.0", ["greendot"], 1),
        ("e", "3.0", ["fast-b"], 1),
        ("fast-b", "2.0", ["a"], 2),
    ]
    (tmp_path / "base.txt").write_text(render("base", packages))
    assert [*read_lock("base", tmp_path)] == packages
    assert render("base", packages) == render("base", select(["A>=1"], reports()))


def test_architectures_that_differ_and_packages_that_are_missing_are_errors() -> None:
    with pytest.raises(Failed, match=r"e differs between x86_64 and aarch64: 3\.0 and 4\.0"):
        select(["A"], reports(aarch64="4.0"))
    with pytest.raises(Failed, match=r"greendot needs z.* on aarch64, which pip has not found"):
        closure(["z; platform_machine == 'aarch64'"], {}, "aarch64")
    assert closure(["z; platform_machine == 'aarch64'"], {}, "x86_64") == {}


# --- SBOM ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (tmp_path / "greendot-1-py3-none-any.whl").write_bytes(b"wheel")
    return tmp_path


def test_the_sbom_of_the_image_has_its_base_and_every_locked_package_and_matches_the_schema(folder: Path) -> None:
    digest = "sha256:" + "ab" * 32
    path = sbom_image(folder, ("python:3.11.15-slim-bookworm", digest))
    check_sbom(path)
    found = json.loads(path.read_text())
    parts = {part["name"]: part for part in found["components"]}
    assert parts.keys() == versions("base").keys() | {"python", "greendot"}
    assert parts["python"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    for one in read_lock("base"):
        assert parts[one.name]["version"] == one.version
        files = {each["url"]: each["hashes"][0]["content"] for each in parts[one.name]["externalReferences"]}
        assert files == one.wheels
    # Every component is reached from the image.
    needs = {each["ref"]: each["dependsOn"] for each in found["dependencies"]}
    reached, waiting = set(), ["image"]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += needs.get(ref, ())
    assert reached == {"image"} | {part["bom-ref"] for part in found["components"]}
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_the_same_content_gives_the_same_sbom_and_an_unknown_digest_is_left_out(folder: Path) -> None:
    base = ("python:3.11.15-slim-bookworm", "")
    path = sbom_image(folder, base)
    check_sbom(path)
    first = path.read_bytes()
    assert sbom_image(folder, base).read_bytes() == first
    (python,) = (part for part in json.loads(first)["components"] if part["name"] == "python")
    assert python["hashes"] == []
    (folder / "greendot-1-py3-none-any.whl").write_bytes(b"another wheel")
    assert json.loads(sbom_image(folder, base).read_bytes())["serialNumber"] != json.loads(first)["serialNumber"]


def test_the_sbom_of_an_npm_package_matches_the_schema(folder: Path) -> None:
    for package in ("js", "react", "vue", "server"):
        own = json.loads((ROOT / "clients" / package / "package.json").read_text())
        name = own["name"].removeprefix("@").replace("/", "-")
        (folder / f"{name}-{own['version']}.tgz").write_bytes(b"tarball")
        path = sbom_npm(folder, package)
        check_sbom(path)
        assert {*own.get("dependencies", {})} <= {part["name"] for part in json.loads(path.read_text())["components"]}


def test_a_document_that_does_not_match_the_schema_is_refused(folder: Path) -> None:
    path = sbom_image(folder, ("python:3.11.15-slim-bookworm", ""))
    for change in ({"components": [{"name": "no type"}]}, {"serialNumber": "1"}, {"unknown": 1}):
        broken = folder / "broken.cdx.json"
        broken.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(Failed, match=r"broken\.cdx\.json does not match the schema"):
            check_sbom(broken)
