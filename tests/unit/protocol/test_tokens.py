from __future__ import annotations

import jwt
import pytest

from greendot.auth.tokens import Tokens
from greendot.errors import TokenError
from greendot.protocol.tokens import claims_in, sign_hs256

SECRET = "s" * 32
NOW_MS = 1_800_000_000_000
CLAIMS = {"sub": "ann", "exp": NOW_MS // 1000 + 60, "name": "Änn 🙂", "rooms": ["lobby", "t-*"]}


def test_a_signed_token_is_read_by_others_and_by_a_server() -> None:
    token = sign_hs256(SECRET, CLAIMS)
    assert jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False}) == CLAIMS
    grants = Tokens(SECRET).read(token, NOW_MS)
    assert (grants.user, grants.name, grants.rooms) == ("ann", "Änn 🙂", ("lobby", "t-*"))


def test_its_header_is_that_of_tokens_the_server_makes() -> None:
    """Servers read tokens with a known header without PyJWT."""
    made = Tokens(SECRET).make("ann", NOW_MS, 60)
    assert sign_hs256(SECRET, CLAIMS).partition(".")[0] == made.partition(".")[0]


def test_another_secret_does_not_fit() -> None:
    with pytest.raises(TokenError, match="another key"):
        Tokens("t" * 32).read(sign_hs256(SECRET, CLAIMS), NOW_MS)


@pytest.mark.parametrize(
    ("claim", "value"), [("sub", "a b"), ("exp", -1), ("rooms", ["a b"]), ("name", "x" * 201), ("send", "yes")]
)
def test_a_wrong_claim_is_named_and_not_repeated(claim: str, value: object) -> None:
    with pytest.raises(TokenError) as caught:
        claims_in(CLAIMS | {claim: value})
    assert claim in str(caught.value)
    assert not isinstance(value, str) or value not in str(caught.value)
