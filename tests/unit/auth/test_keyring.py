"""Verification of tokens with real keys of all algorithms, and keys that are not accepted for another algorithm."""

from __future__ import annotations

import base64
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from greendot.auth.claims import TokenRules
from greendot.auth.keyring import ALGORITHMS, PUBLIC, BadKey, Keyring, VerificationKey, public_key_of, secret_of
from greendot.auth.tokens import Tokens, UnknownKey
from greendot.errors import TokenError
from signers import ALGORITHMS as SIGNED
from signers import Signer, signer

NOW = 1_800_000_000_000
CLAIMS = {"sub": "ann", "exp": NOW // 1000 + 3_600}

every_algorithm = pytest.mark.parametrize("alg", ALGORITHMS)
every_public_one = pytest.mark.parametrize("alg", PUBLIC)


def key(of: Signer, kid: str | None = "k1", **more: object) -> VerificationKey:
    material = of.private.encode() if of.alg.startswith("HS") else of.public
    return VerificationKey(of.alg, material, kid, **more)  # type: ignore[arg-type]


def refused(tokens: Tokens, token: str) -> TokenError:
    with pytest.raises(TokenError) as caught:
        tokens.read(token, NOW)
    assert len(token) < 10 or token not in str(caught.value)
    return caught.value


def test_the_tests_know_all_algorithms() -> None:
    assert SIGNED == ALGORITHMS


@every_algorithm
def test_a_token_is_read_the_first_time_and_the_next(alg: str) -> None:
    tokens = Tokens(keys=[key(signer(alg))])
    for user in ("ann", "ann", "bob"):
        assert tokens.read(signer(alg).sign("k1", **CLAIMS | {"sub": user}), NOW).user == user


@every_algorithm
def test_a_token_of_another_key_of_the_same_name_is_refused_the_first_time_and_the_next(alg: str) -> None:
    tokens = Tokens(keys=[key(signer(alg))])
    forged = signer(alg, "another").sign("k1", **CLAIMS)
    assert "another key" in str(refused(tokens, forged))
    tokens.read(signer(alg).sign("k1", **CLAIMS), NOW)
    assert "another key" in str(refused(tokens, forged))


@every_algorithm
def test_a_token_cut_off_anywhere_is_refused(alg: str) -> None:
    tokens = Tokens(keys=[key(signer(alg))])
    token = signer(alg).sign("k1", **CLAIMS)
    tokens.read(token, NOW)
    for length in range(len(token)):
        refused(tokens, token[:length])


@every_algorithm
def test_a_token_changed_in_one_bit_is_refused(alg: str) -> None:
    tokens = Tokens(keys=[key(signer(alg))])
    token = signer(alg).sign("k1", **CLAIMS).encode()
    tokens.read(token.decode(), NOW)
    for at in range(len(token)):
        refused(tokens, (token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :]).decode())


@every_algorithm
@pytest.mark.parametrize("other", ALGORITHMS)
def test_a_known_key_with_another_algorithm_is_refused(alg: str, other: str) -> None:
    if alg == other:
        return
    tokens = Tokens(keys=[key(signer(alg), "k1"), key(signer(other), "k2")])
    assert "for another algorithm" in str(refused(tokens, signer(other).sign("k1", **CLAIMS)))


@every_public_one
@pytest.mark.parametrize("hmac_alg", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("kid", [None, "k1"])
def test_a_public_key_is_never_a_secret(alg: str, hmac_alg: str, kid: str | None) -> None:
    """A public key is known to attackers. As an HMAC secret it would let them sign."""
    public = signer(alg).public
    written = [public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)]
    written += [written[0].strip(), public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)]
    head = encoded(json.dumps({"alg": hmac_alg} | ({"kid": kid} if kid else {})).encode())
    signed = head + b"." + encoded(json.dumps(CLAIMS).encode())
    # Repeat with a real secret configured, because HMAC is an accepted algorithm then.
    for tokens in (Tokens(keys=[key(signer(alg))]), Tokens("a secret, long enough to be taken", [key(signer(alg))])):
        tokens.read(signer(alg).sign("k1", **CLAIMS), NOW)
        for secret in written:
            signature = hmac.digest(secret, signed, f"sha{hmac_alg[2:]}")
            refused(tokens, (signed + b"." + encoded(signature)).decode())


@every_algorithm
@pytest.mark.parametrize("said", ["none", "None", "NONE", "", "nOnE", None, 5, ["HS256"], "HS1", "RS512", "PS256"])
def test_an_algorithm_that_is_none_is_refused(alg: str, said: object) -> None:
    tokens = Tokens(keys=[key(signer(alg))])
    head = encoded(json.dumps({"alg": said, "kid": "k1"}).encode())
    body = encoded(json.dumps(CLAIMS).encode())
    signature = signer(alg).sign("k1", **CLAIMS).rpartition(".")[2].encode()
    for end in (b"", signature):
        refused(tokens, b".".join([head, body, end]).decode())


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


# --- choice of the key ---


def test_each_token_names_its_key() -> None:
    names = {"a": signer("RS256"), "b": signer("RS256", "b"), "c": signer("EdDSA"), "d": signer("HS512")}
    tokens = Tokens("x" * 32, [key(of, kid) for kid, of in names.items()])
    for kid, of in names.items():
        assert tokens.read(of.sign(kid, **CLAIMS), NOW).user == "ann"
        for other in names.keys() - {kid}:
            refused(tokens, of.sign(other, **CLAIMS))


def test_a_token_that_names_no_key_is_of_the_only_one_there_is() -> None:
    only = Tokens(keys=[key(signer("ES256")), key(signer("HS256"))])
    assert only.read(signer("ES256").sign(**CLAIMS), NOW).user == "ann"
    two = Tokens(keys=[key(signer("ES256")), key(signer("ES256", "2"), "k2")])
    assert isinstance(refused(two, signer("ES256").sign(**CLAIMS)), UnknownKey)


def test_an_unknown_key_is_refused_as_such() -> None:
    unknown = refused(Tokens(keys=[key(signer("RS256"))]), signer("RS256").sign("k7", **CLAIMS))
    assert isinstance(unknown, UnknownKey)
    assert unknown.kid == "k7"


def test_a_retired_key_is_refused_and_its_forgeries_get_the_usual_refusal() -> None:
    tokens = Tokens(keys=[key(signer("EdDSA"), retired=True)])
    retired = refused(tokens, signer("EdDSA").sign("k1", **CLAIMS))
    assert "retired" in str(retired)
    assert not retired.expired
    assert "another key" in str(refused(tokens, signer("EdDSA", "forger").sign("k1", **CLAIMS)))


def test_a_key_that_ends_ends_its_tokens() -> None:
    tokens = Tokens(keys=[key(signer("HS256"), not_after=NOW + 5_000), key(signer("HS256", "new"), "k2")])
    token = signer("HS256").sign("k1", **CLAIMS)
    assert tokens.read(token, NOW).expires_at == NOW + 5_000
    with pytest.raises(TokenError) as caught:
        tokens.read(token, NOW + 5_000)
    assert caught.value.expired  # the client must return with another token
    assert tokens.read(signer("HS256", "new").sign("k2", **CLAIMS), NOW).expires_at == NOW + 3_600_000


def test_a_tenants_key_signs_for_that_tenant_only() -> None:
    tokens = Tokens(keys=[key(signer("RS256"), tenant="acme"), key(signer("EdDSA"), "k2")])
    mine = signer("RS256")
    assert tokens.read(mine.sign("k1", **CLAIMS, tenant="acme"), NOW).tenant == "acme"
    assert tokens.read(mine.sign("k1", **CLAIMS), NOW).tenant == "acme"
    for other in ("default", "umbrella", "Acme", "acme "):
        refused(tokens, mine.sign("k1", **CLAIMS, tenant=other))
    assert tokens.read(signer("EdDSA").sign("k2", **CLAIMS, tenant="umbrella"), NOW).tenant == "umbrella"


def test_only_algorithms_on_the_list_are_taken() -> None:
    keys = [key(signer("RS256"), "r"), key(signer("HS256"), "h")]
    tokens = Tokens("x" * 32, keys, TokenRules(algorithms=frozenset({"RS256"})))
    assert tokens.read(signer("RS256").sign("r", **CLAIMS), NOW).user == "ann"
    assert "algorithm" in str(refused(tokens, signer("HS256").sign("h", **CLAIMS)))
    assert "algorithm" in str(refused(tokens, jwt.encode(CLAIMS, "x" * 32)))
    assert not tokens.can_make


@given(
    st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.sampled_from(ALGORITHMS)), max_size=6),
    st.none() | st.sampled_from("abcd"),
    st.sampled_from(ALGORITHMS),
)
def test_no_key_is_ever_chosen_for_another_algorithm(
    keys: list[tuple[str | None, str]], kid: str | None, alg: str
) -> None:
    ring = Keyring([VerificationKey(of, b"", name) for name, of in keys])
    for found in ring.fitting(kid, alg):
        assert found.alg == alg
        assert kid is None or found.kid in (kid, None)


# --- valid and invalid keys ---


@every_public_one
def test_a_public_key_fits_its_own_algorithm_only(alg: str) -> None:
    pem = signer(alg).pem.encode()
    assert public_key_of(alg, pem) == signer(alg).public
    for other in {*PUBLIC} - {alg}:
        with pytest.raises(BadKey, match=other):
            public_key_of(other, pem)


def test_weak_and_strange_keys_are_refused() -> None:
    def pem(private: object) -> bytes:
        public = private.public_key()  # type: ignore[attr-defined]
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    for alg, private, why in (
        ("RS256", rsa.generate_private_key(65537, 1024), "2048"),
        ("ES256", ec.generate_private_key(ec.SECP384R1()), "P-256"),
        ("ES256", ec.generate_private_key(ec.SECP256K1()), "P-256"),
        ("EdDSA", ed448.Ed448PrivateKey.generate(), "Ed25519"),
    ):
        with pytest.raises(BadKey, match=why):
            public_key_of(alg, pem(private))
    private = signer("EdDSA").private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(BadKey, match="private"):
        public_key_of("EdDSA", private)
    for nonsense in (b"", b"nonsense", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"):
        with pytest.raises(BadKey, match="PEM"):
            public_key_of("RS256", nonsense)


def test_a_secret_is_as_long_as_its_hash_and_no_public_key() -> None:
    for alg, length in (("HS256", 32), ("HS384", 48), ("HS512", 64)):
        assert secret_of(alg, b"x" * length)
        with pytest.raises(BadKey, match=str(length)):
            secret_of(alg, b"x" * (length - 1))
    with pytest.raises(BadKey, match="PEM"):
        secret_of("HS256", signer("RS256").pem.encode())
