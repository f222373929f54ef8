"""Detection of invented secrets as opposed to random ones. No finding repeats the secret."""

from __future__ import annotations

import base64
import random
import string

import pytest

from greendot.ops.doctor.secrets import weakness


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        "x" * 64,
        "0123456789" * 4,
        "abcabcabcabcabcabcabcabcabcabcabcab",
        "abcdefghijklmnopqrstuvwxyz0123456789",
        "a secret of at least thirty-two characters",
        "please-change-me-please-change-me!",
        "GREENDOT-greendot-GREENDOT-greendot",
        "correcthorsebatterystaplecorrecthorse",
        "CHANGEME" + "q8Zt5Lw1" * 5,
        "aabbaabbababbbaabababbaabbaababab",
        "password123password123password123!",
        "qwertyuiopasdfghjklzxcvbnm1234567890",
    ],
)
def test_an_invented_secret_is_reported_as_weak_and_not_repeated(text: str) -> None:
    said = weakness(text)
    assert said is not None
    assert not text or text not in said


def test_what_was_made_by_chance_is_good_however_it_is_written() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        assert weakness(chance.randbytes(32).hex()) is None
        assert weakness(chance.randbytes(16).hex()) is None
        assert weakness(base64.b64encode(chance.randbytes(32)).decode()) is None
        assert weakness("".join(chance.choices(string.ascii_letters + string.digits, k=32))) is None


def test_a_password_may_be_shorter_than_a_key() -> None:
    assert weakness("q8Zt5Lw1vK0yXj4Rb7Ns", 20) is None
    assert weakness("q8Zt5Lw1vK0yXj4Rb7N", 20) is not None
