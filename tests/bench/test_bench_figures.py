"""Results of the bench: ratios, verdicts, progress line, and unavailable peers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import guarded
import hooked
import run
from greendot.config import load
from measure import Rounds
from peer_install import Home, install
from peer_measure import WITH_REDIS, Figures, Idle
from peer_report import ratios, remarks, tables, targets
from progress import Progress
from records_measure import RecordsBench


def contenders(**rates: dict[int, float]) -> dict[str, Figures]:
    """Return results by name, with deliveries per second by round, sixteen in flight."""
    found = {name: Figures(name, name.title()) for name in rates}
    for name, values in rates.items():
        found[name].rates[16] = values
        found[name].busy[16] = dict.fromkeys(values, 0.5)
    return found


def row(table: str, what: str) -> str:
    return next(line for line in table.splitlines() if what in line)


def test_a_ratio_is_taken_round_by_round_and_a_failed_round_is_left_out() -> None:
    assert ratios({0: 10.0, 1: 20.0, 2: 90.0}, {0: 5.0, 2: 30.0}) == [2.0, 3.0]


def test_a_target_is_shown_met_missed_or_not_measured() -> None:
    table = targets(contenders(greendot={0: 900.0, 1: 800.0}, bun={0: 600.0, 1: 600.0}, socketio={0: 400.0, 1: 400.0}))
    assert "| 1.42 " in row(table, "16 in flight: Greendot ÷ Bun")
    assert "| met " in row(table, "16 in flight: Greendot ÷ Bun")
    assert "**missed**" in row(table, "16 in flight: Greendot ÷ Socketio")
    assert "not measured" in row(table, "16 in flight: Greendot ÷ Centrifugo")


def test_what_others_took_from_the_server_is_not_in_the_ratio_by_cpu_time() -> None:
    found = contenders(greendot={0: 500.0}, bun={0: 1000.0})
    found["greendot"].busy[16][0], found["bun"].busy[16][0] = 0.4, 0.8
    assert "| 0.50 " in row(targets(found), "16 in flight: Greendot ÷ Bun")
    assert "| 1.00 " in row(targets(found), "16 in flight: Greendot ÷ Bun")


def test_connects_with_redis_have_a_target_of_their_own() -> None:
    found = contenders(greendot={0: 1.0}, centrifugo={0: 1.0})
    for name, rate in (("greendot", 6_000.0), ("centrifugo", 10_000.0)):
        found[name].connects, found[name].connect_busy = {0: rate}, {0: 1.0}
    what = "Greendot with Redis ÷ Centrifugo, with the same token"
    assert "not measured" in row(targets(found), what)
    found[WITH_REDIS] = Figures(WITH_REDIS, "Greendot with Redis", connects={0: 4_900.0}, connect_busy={0: 0.9})
    assert "| 0.49 " in row(targets(found), what)
    assert "**missed**" in row(targets(found), what)
    assert WITH_REDIS not in "".join(tables(found))
    assert "| Greendot with Redis | 4,900/s" in " ".join(tables(found)[-1].split())


def test_few_connections_do_not_decide_about_memory() -> None:
    found = contenders(greendot={0: 1.0})
    found["greendot"].idle = Idle(2_000, 10_600, None)
    assert "too few connections" in row(targets(found), "memory per idle connection")
    found["greendot"].idle = Idle(15_000, 9_100, 0.04)
    assert "**missed**" in row(targets(found), "memory per idle connection")


def test_failed_and_missing_measurements_are_reported() -> None:
    found = contenders(greendot={0: 1.0})
    found["greendot"].fail("broadcast 1/5", "message 7 reached 999 of 1000 subscribers")
    said = remarks(found, {"Bun": "there is no `node` here"})
    assert said == [
        "- Bun was not measured: there is no `node` here.",
        "- Greendot, broadcast 1/5: message 7 reached 999 of 1000 subscribers",
    ]


def test_the_progress_line_shows_the_part_the_elapsed_and_the_remaining_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = Progress({"broadcast": 100, "connect": 20, "idle": 60}, terminal=False)
    shown.begin("connect")
    assert shown.line(time.monotonic() + 15).startswith("[2/3] connect, 0:15 gone, about 1:0")  # 5 s + 60 s
    shown.say("round 1")
    assert "round 1" in shown.line(time.monotonic())
    assert len(shown.line(time.monotonic(), width=30)) == 30
    assert "\r" not in capsys.readouterr().out


def test_a_peer_whose_tools_are_missing_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = install(Home(tmp_path / "peers"), {"npm", "go", "debian"})
    assert missing == {
        "npm": "`node` was not found",
        "debian": "`nginx` was not found",
        "go": "`go` was not found",
    }


def test_an_install_that_fails_is_left_out_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: no route to host' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    missing = install(Home(tmp_path / "peers"), {"go"})
    assert missing == {"go": "`go` failed: go: no route to host"}


def test_what_was_installed_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho once >> {tmp_path}/calls\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert install(Home(tmp_path / "peers"), {"go"}) == {}
    assert install(Home(tmp_path / "peers"), {"go"}) == {}
    assert (tmp_path / "calls").read_text() == "once\n"


def test_what_authorisation_costs_is_a_ratio_of_rounds_with_a_verdict_where_many_listen() -> None:
    level, few = (1_000, 16), (guarded.FEW, 16)
    found = guarded.Guarded(
        off={level: Rounds([100.0, 200.0], [1.0, 1.0]), few: Rounds([100.0], [1.0])},
        on={level: Rounds([95.0, 180.0], [1.0, 0.9]), few: Rounds([70.0], [0.7])},
    )
    ratios = {row.figure: row for row in guarded.rows(found) if "÷" in row.figure}
    many = ratios["broadcast to 1,000 with 16 in flight, on ÷ off"]
    assert (many.median, many.verdict) == ("0.93", "met")
    assert ratios["broadcast to 1,000 with 16 in flight, on ÷ off, by the server's CPU time"].median == "0.97"
    assert ratios["broadcast to 10 with 16 in flight, on ÷ off"].verdict == ""
    found.on[level] = Rounds([80.0, 170.0], [1.0, 1.0])
    assert "**missed**" in [row.verdict for row in guarded.rows(found)]


def test_every_limit_of_a_message_is_charged_where_they_are_on() -> None:
    settings = load(None, guarded._settings(), {})
    assert settings.limits.enabled
    for scope in ("connection", "user", "room", "tenant"):
        assert settings.limits.rate(scope, "signals") == guarded.ENOUGH


def test_the_cost_of_a_webhook_is_reported_in_cpu_time() -> None:
    cost = hooked.Cost(Rounds([1_000.0], [0.1]), Rounds([800.0], [0.12]), told=[700.0], late_s=[0.4])
    rows = {row.figure: row for row in hooked.rows(hooked.Hooked({"messages": cost}))}
    assert rows["messages: CPU of each, without"].median == "100 µs"
    assert rows["messages: CPU of each, with"].cells()[1:3] == ("150 µs", "+50%")


def test_every_part_can_be_measured() -> None:
    measured = [*run.REDIS_PARTS, *run.RECORD_PARTS]
    assert [part for part in measured if not callable(getattr(RecordsBench, part, None))] == []
