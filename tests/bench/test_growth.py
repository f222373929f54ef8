"""Small growth curves: each table has a row for each size. `make growth` measures the full ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from growth import BEGIN, END, PAGE, of_nodes, of_rooms, of_users, text_of

pytestmark = pytest.mark.timeout(300)


def test_each_size_has_a_row_with_the_costs_of_a_node_a_user_and_a_room(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    tables = {
        "nodes": of_nodes(tmp_path, (1, 2), 60, idle_s=1, pulse_s=2),
        "users": of_users(tmp_path, (1_000, 2_000)),
        "rooms": of_rooms(tmp_path, (1_000, 2_000)),
    }
    for headings, rows in tables.values():
        assert len(rows) == 2
        assert all(len(row) == len(headings) for row in rows)
    assert [row[1] for row in tables["nodes"][1]] == ["60", "120"]
    text = text_of(tables)
    assert "### rooms" in text
    assert "| 2,000 " in text


def test_the_page_has_room_for_the_tables() -> None:
    text = PAGE.read_text()
    assert text.index(BEGIN) < text.index(END)
