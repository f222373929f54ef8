"""Names and texts survive the packed record, whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.core.presence import Face
from greendot.engine.redis.pack import escape, nodes_of, read_face, read_snapshot, unescape


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_survives(text: str) -> None:
    packed = escape(text)
    assert not set(packed) & set("|,;")
    assert unescape(packed) == text


def test_a_face_is_read_with_what_is_left_out() -> None:
    assert read_face("f") == Face()
    assert read_face("o18f") == Face("online", 0x18F, None, 0x18F)
    assert read_face("f18f,1,2,,i,5") == Face("offline", 1, 2, 0x18F, None, "invisible", 5)
    assert read_snapshot("o1|o1|A%7CB|phone,tv").devices == ["phone", "tv"]
    assert read_snapshot("o1|o1|A%7CB|").name == "A|B"


def test_a_session_names_its_node_unless_the_record_does() -> None:
    assert nodes_of("o1||A|a||k1-s1,phone,1;k2-s2,tv,2,i,,,k9") == {"k1", "k9"}
