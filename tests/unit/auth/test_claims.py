"""Time, audience and issuer of a token, checked by the token rules."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.auth.claims import TokenRules
from greendot.auth.keyring import VerificationKey
from greendot.auth.model import Grants
from greendot.auth.tokens import Tokens
from greendot.errors import TokenError
from greendot.protocol.tokens import claims_in

NOW = 1_800_000_000_000
KEY = VerificationKey("HS256", b"x" * 32)


def granted(rules: TokenRules, now: int = NOW, key: VerificationKey = KEY, **claims: Any) -> Grants:
    return rules.grants(claims_in({"sub": "ann", "exp": NOW // 1000 + 60} | claims), key, now)


def refused(rules: TokenRules, now: int = NOW, **claims: Any) -> TokenError:
    with pytest.raises(TokenError) as caught:
        granted(rules, now, **claims)
    return caught.value


def test_the_leeway_is_given_at_both_ends() -> None:
    rules = TokenRules(leeway_ms=5_000)
    end = NOW + 60_000
    assert granted(rules, end + 4_999).expires_at == end  # the leeway does not change the token's own expiry
    assert refused(rules, end + 5_000).expired
    assert granted(rules, NOW, nbf=NOW // 1000 + 5).user == "ann"
    assert not refused(rules, NOW, nbf=NOW // 1000 + 6).expired


def test_no_token_is_for_the_user_that_stands_for_the_app() -> None:
    assert "stands for the app" in str(refused(TokenRules(), sub="system"))
    assert granted(TokenRules(), sub="System").user == "System"


def test_without_a_leeway_there_is_none() -> None:
    assert refused(TokenRules(), NOW + 60_000).expired
    assert "yet" in str(refused(TokenRules(), NOW, nbf=NOW // 1000 + 1))


def test_the_audience_must_be_ours_or_have_us_in_it() -> None:
    rules = TokenRules(audience="chat")
    assert granted(rules, aud="chat").user == granted(rules, aud=["mail", "chat"]).user == "ann"
    for other in ("mail", "chat2", "Chat", "", None, [], ["mail"], [["chat"]], {"chat": 1}, 7, True):
        assert "`aud`" in str(refused(rules, aud=other))
    assert "`aud`" in str(refused(rules))


def test_the_issuer_must_be_the_one() -> None:
    rules = TokenRules(issuer="https://id.example.org")
    assert granted(rules, iss="https://id.example.org").user == "ann"
    for other in ("https://id.example.org/", "https://id.example.org.evil.com", ["https://id.example.org"], None):
        assert "`iss`" in str(refused(rules, iss=other))
    assert "`iss`" in str(refused(rules))


def test_audience_and_issuer_are_ignored_without_a_rule() -> None:
    assert granted(TokenRules(), aud={"any": 1}, iss=[7]).user == "ann"


def test_what_is_made_fits_the_rules() -> None:
    tokens = Tokens("x" * 32, rules=TokenRules(audience="chat", issuer="me"))
    assert tokens.read(tokens.make("ann", NOW, 60), NOW).user == "ann"
    bound = Tokens(keys=[VerificationKey("HS512", b"x" * 64, "k1", tenant="acme")])
    assert bound.read(bound.make("ann", NOW, 60), NOW).tenant == "acme"
