"""Title and text of a push payload."""

from __future__ import annotations

import pytest

from greendot.push.payload import _shown


@pytest.mark.parametrize("body", [b"[" * 30_000 + b"]" * 30_000, b'{"title":"x","more":' + b"[" * 30_000, b"1", b"["])
def test_a_body_that_cannot_be_read_shows_nothing(body: bytes) -> None:
    assert _shown(body) == {}


def test_title_and_text_are_shown() -> None:
    assert _shown(b'{"title":"Mia","text":"there?","room":"lobby"}') == {"title": "Mia", "text": "there?"}
