"""systemd unit: accepted by systemd, sandboxed, and with a stop timeout longer than the drain."""

from __future__ import annotations

import re
from pathlib import Path

from deployed.programs import DEPLOY, program, said
from greendot.config import Settings

UNIT = DEPLOY / "systemd" / "greendot.service"


def value(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def test_systemd_takes_it(tmp_path: Path) -> None:
    # The program is not installed here, so another one replaces it.
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/greendot/bin/greendot", "/bin/true"))
    assert said(program("systemd-analyze"), "verify", tmp_path / UNIT.name) == ""


def test_the_unit_file_has_a_low_exposure_level() -> None:
    found = said(program("systemd-analyze"), "security", "--offline=true", UNIT)
    (level,) = re.findall(r"Overall exposure level for greendot.service: ([\d.]+)", found)
    assert float(level) < 2.0, found


def test_it_is_killed_only_after_it_has_drained() -> None:
    server = Settings().server
    assert float(value("TimeoutStopSec")) >= server.drain_s + server.drain_notice_s + 10
    assert value("KillMode") == "mixed"
    assert int(value("LimitNOFILE")) >= 100_000
    assert value("StateDirectory") == "greendot"
