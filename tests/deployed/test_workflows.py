"""Workflows: valid, with few rights, and with actions that cannot change unnoticed. They have not been run here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployed.programs import ROOT, said
from release.artefacts import PACKAGES

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_has_the_form_of_a_workflow(file: Path) -> None:
    checker = Path(sys.executable).parent / "check-jsonschema"
    said(checker, "--builtin-schema", "vendor.github-workflows", file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_action_is_a_commit_with_its_version_as_a_comment(file: Path) -> None:
    used = re.findall(r"uses: (.+)", file.read_text())
    assert used
    for action in used:
        assert action.startswith("./") or re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_an_action_has_one_commit_in_all_workflows() -> None:
    pairs = {pair for file in FILES for pair in re.findall(r"uses: (actions/[\w-]+)@(\w+)", file.read_text())}
    assert len({name for name, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_rights_are_few_and_no_step_keeps_the_credentials_of_the_checkout(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        # Text of an event in a script could run commands. The environment is safe.
        assert "${{" not in step.get("run", ""), step


def test_only_jobs_that_publish_may_write_and_they_wait_for_the_tests_and_a_maintainer() -> None:
    jobs = RELEASE["jobs"]
    writers = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writers == {"image", "publish"}
    assert all(jobs[name]["environment"] == "release" for name in writers)
    assert (jobs["build"]["needs"], jobs["image"]["needs"]) == ("test", "build")
    assert set(jobs["publish"]["needs"]) == {"build", "image"}
    secrets = set(re.findall(r"secrets\.(\w+)", str(RELEASE)))
    assert secrets == {"GITHUB_TOKEN"}


def test_every_package_is_published() -> None:
    scripts = "\n".join(step.get("run", "") for step in steps(RELEASE))
    for package in PACKAGES:
        name = {"js": "client"}.get(package, package)
        assert f"./release/greendot-{name}-*.tgz" in scripts
    for word in ("uv publish", "imagetools create", "gh release create", "sha256sum --check", "make release-check"):
        assert word in scripts
    assert {one["architecture"] for one in RELEASE["jobs"]["image"]["strategy"]["matrix"]["include"]} == {
        "amd64",
        "arm64",
    }


def test_scripts_of_workflows_can_be_read_by_a_shell() -> None:
    texts = [step["run"] for file in FILES for step in steps(yaml.safe_load(file.read_text())) if "run" in step]
    texts.append((ROOT / "scripts" / "try-image").read_text())
    for text in texts:
        read = subprocess.run(["sh", "-n", "-c", text], capture_output=True, text=True, timeout=20)
        assert (read.returncode, read.stderr) == (0, ""), text


def test_the_tag_is_compared_with_the_version_of_the_package() -> None:
    (script,) = [
        step["run"] for step in steps(RELEASE) if "$TAG" in step.get("run", "") and "__version__" in step["run"]
    ]
    from greendot import __version__

    for tag, code in ((f"v{__version__}", 0), ("v9.9.9", 1), (__version__, 1)):
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, env={"TAG": tag, "PATH": path}, timeout=20)
        assert done.returncode == code, tag
