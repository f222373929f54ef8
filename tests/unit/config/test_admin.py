"""What is wrong with the dashboard's settings."""

from __future__ import annotations

import pytest

from greendot.config.admin import Admin, check_admin


@pytest.mark.parametrize(
    ("admin", "said"),
    [
        (Admin(key="short"), "could be guessed"),
        (Admin(port=8000), "the server's own"),
        (Admin(host="127.0.0.1"), "a port of its own"),
    ],
)
def test_a_mistake_says_what_to_do(admin: Admin, said: str) -> None:
    (mistake,) = check_admin(admin, 8000)
    assert said in mistake
    assert "short" not in mistake.replace("shorter", "")


def test_it_is_off_unless_it_is_switched_on_and_its_own_port_is_allowed() -> None:
    assert not Admin().enabled
    assert [*check_admin(Admin(enabled=True, host="127.0.0.1", port=9000, key="k" * 32), 8000)] == []
