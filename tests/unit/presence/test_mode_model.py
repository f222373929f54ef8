"""Table of presence modes: the app's choice, then the operator's, then `auto`."""

from __future__ import annotations

from greendot.presence.mode_model import ModeTable

ANN, BOB, OTHER = ("t", "ann"), ("t", "bob"), ("t2", "ann")


def test_a_user_without_a_mode_is_auto() -> None:
    table = ModeTable()
    assert (table.of(ANN), table.has_any("t")) == ("auto", False)


def test_modes_are_set_and_removed_for_the_named_users_only() -> None:
    table = ModeTable()
    assert table.put("t", ["ann", "bob"], {"ann": "poll", "bob": "live"}) == [ANN, BOB]
    assert (table.of(ANN), table.of(BOB), table.of(OTHER)) == ("poll", "live", "auto")
    assert (table.has_any("t"), table.has_any("t2")) == (True, False)
    assert table.put("t", ["ann"], {"ann": "poll", "bob": "poll"}) == []
    assert table.of(BOB) == "live"
    assert table.put("t", ["ann"], {}) == [ANN]
    assert (table.of(ANN), table.of(BOB), table.has_any("t")) == ("auto", "live", True)
    assert table.put("t", ["bob"], {}) == [BOB]
    assert not table.has_any("t")


def test_all_modes_of_a_tenant_are_replaced() -> None:
    table = ModeTable()
    table.replace("t", {"ann": "poll", "bob": "live"})
    table.replace("t2", {"ann": "live"})
    assert sorted(table.replace("t", {"bob": "live", "cid": "poll"})) == [ANN, ("t", "cid")]
    assert [table.of(key) for key in (ANN, BOB, ("t", "cid"), OTHER)] == ["auto", "live", "poll", "live"]


def test_a_user_of_the_settings_polls_unless_the_app_chooses_another_mode() -> None:
    table = ModeTable([ANN])
    assert (table.of(ANN), table.of(OTHER), table.has_any("t2")) == ("poll", "auto", True)
    assert table.put("t", ["ann"], {"ann": "poll"}) == []
    assert table.put("t", ["ann"], {"ann": "live"}) == [ANN]
    assert table.of(ANN) == "live"
    assert table.put("t", ["ann"], {}) == [ANN]
    assert table.of(ANN) == "poll"
