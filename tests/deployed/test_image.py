"""Dockerfile: clean by hadolint's rules, and with the properties that clusters require of an image."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deployed.programs import DEPLOY, ROOT, said
from greendot import __version__
from greendot.config import Settings
from release.check import try_image_command
from release.image_lock import EXTRAS

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Return each instruction with its arguments, with joined lines and without comments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def last_stage() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, rest in instructions():
        found = {} if name == "FROM" else found | {name: rest}
    return found


def test_hadolint_finds_nothing() -> None:
    assert said(Path(sys.executable).parent / "hadolint", "--failure-threshold", "style", DOCKERFILE) == ""


def test_it_runs_as_a_user_with_a_number_who_is_not_root_and_stops_by_draining() -> None:
    stage = last_stage()
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", stage["USER"])
    assert stage["STOPSIGNAL"] == "SIGTERM"
    assert stage["ENTRYPOINT"] == '["greendot"]'  # no shell between the program and signals
    assert stage["HEALTHCHECK"].endswith('CMD ["greendot", "health"]')
    assert stage["EXPOSE"] == str(Settings().server.port)


def test_only_what_is_copied_is_sent_to_the_builder() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert sent == copied
    assert all((ROOT / source).exists() for source in copied)


def test_nothing_secret_is_in_it() -> None:
    assert not [
        rest for name, rest in instructions() if name in ("ARG", "ENV") and re.search(r"SECRET|KEY|PASS|TOKEN", rest)
    ]


def test_everything_that_is_deployed_is_of_this_version() -> None:
    for path in (*DEPLOY.glob("compose/*.yml"), DOCKERFILE, ROOT / "docs" / "deploy.md"):
        assert {*re.findall(r"greendot:(\d[\w.]*)", path.read_text())} == {__version__}, path.name
    chart = (DEPLOY / "helm" / "greendot" / "Chart.yaml").read_text()
    assert re.findall(r'^(?:version|appVersion): "?([\w.]+)', chart, re.MULTILINE) == [__version__] * 2


def test_the_base_has_an_exact_version_and_the_last_stage_installs_nothing() -> None:
    given = dict(rest.split("=", 1) for name, rest in instructions() if name == "ARG" and "=" in rest)
    assert re.fullmatch(r"3\.\d+\.\d+", given["PYTHON"])
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    # A release gives the digest; without it the tag is used.
    assert set(bases) == {"python:${PYTHON}-slim-bookworm${DIGEST}"}
    assert given["DIGEST"] == ""
    assert not re.search(r"\b(apt|apt-get|pip|gcc)\b", last_stage()["RUN"])


def test_the_image_installs_locked_wheels_by_their_hashes() -> None:
    """Each `pip install` either requires hashes, or installs the wheel of this folder without an index."""
    steps = [step for name, rest in instructions() if name == "RUN" for step in re.split(r"&&|;", rest)]
    installing = [step for step in steps if re.search(r"\bpip\b.*\b(install|wheel|download)\b", step)]
    assert len(installing) == 4
    for step in installing:
        assert "--require-hashes --only-binary :all:" in step or "--no-deps --no-index" in step, step
    assert {name for step in steps for name in re.findall(r"deploy/image/(\S+)\.txt", step)} == {"build", "${lock}"}
    assert {path.stem for path in (ROOT / "deploy" / "image").iterdir()} == {"base", "build", *EXTRAS}


def install(extras: str, failing: str = "none") -> subprocess.CompletedProcess[str]:
    """Run the shell of the Dockerfile with a `pip` that prints its arguments, and fails for one file."""
    (script,) = (rest for name, rest in instructions() if name == "RUN" and "EXTRAS" in rest)
    pip = f'pip() {{ echo "$@"; case "$*" in *{failing}.txt*) return 1; esac; }}'
    environment = {"EXTRAS": extras, "PATH": "/usr/bin:/bin"}
    command = ["sh", "-euc", f"{pip}\n{script}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("extras", ["", "otel", "otel,local"])
def test_extras_are_installed_from_their_lock_files(extras: str) -> None:
    done = install(extras)
    assert (done.returncode, done.stderr) == (0, "")
    files = re.findall(r"--requirement deploy/image/(\w+)\.txt", done.stdout)
    assert files == ["build", "base", *filter(None, extras.split(","))]


@pytest.mark.parametrize("failing", ["build", "base", "otel"])
def test_a_failed_installation_fails_the_image(failing: str) -> None:
    assert install("otel,local", failing).returncode == 1


def test_dev_alone_starts_the_demo_where_a_published_port_reaches_it(tmp_path: Path) -> None:
    try_image_command(Path(sys.executable).parent / "greendot", tmp_path / "image")
    assert "GREENDOT_SERVER_DEV_HOST=0.0.0.0" in last_stage()["ENV"].split()
    assert Settings().server.dev_host == "127.0.0.1"
