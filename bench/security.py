"""Cost of token verification: tokens per second on one core, with real keys of every algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from greendot.auth.keyring import VerificationKey
from greendot.auth.tokens import Tokens
from greendot.errors import TokenError
from measure import Plan, say
from report import Row, verdict

HS256_TARGET = 5_000  # per second
TOKENS = 200  # number of different tokens, verified in turn
NOW_MS = 1_800_000_000_000
MAKERS: dict[str, Callable] = {
    "RS256": partial(rsa.generate_private_key, 65537, 2048),
    "ES256": partial(ec.generate_private_key, ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
ALGORITHMS = ("HS256", "HS512", *MAKERS)


@dataclass
class Verified:
    """Tokens per second of CPU time, by round: valid tokens, and tokens signed by another key."""

    good: dict[str, list[float]] = field(default_factory=dict)
    forged: dict[str, list[float]] = field(default_factory=dict)


def verified(plan: Plan) -> Verified:
    found = Verified({alg: [] for alg in ALGORITHMS}, {alg: [] for alg in ALGORITHMS})
    readers = {alg: _reader(alg) for alg in ALGORITHMS}
    for number in range(plan.verify_rounds):
        for alg, (tokens, good, forged) in readers.items():  # alternating, because a shared machine is noisy
            found.good[alg].append(_rate(tokens, good, plan.verify_s))
            found.forged[alg].append(_rate(tokens, forged, plan.verify_s))
        say(f"tokens {number + 1}/{plan.verify_rounds}: {found.good['HS256'][-1]:,.0f}/s with HS256")
    return found


def _reader(alg: str) -> tuple[Tokens, list[str], list[str]]:
    """Return a verifier, valid tokens, and tokens signed by another key."""
    ours, others = (MAKERS[alg]() if alg in MAKERS else secret * 64 for secret in "ab")
    key = VerificationKey(alg, ours.public_key() if alg in MAKERS else ours.encode(), "k1")
    return Tokens(keys=[key]), _made(alg, ours), _made(alg, others)


def _made(alg: str, private: object) -> list[str]:
    claims = {"exp": NOW_MS // 1000 + 3_600, "tenant": "acme", "rooms": ["team-*"], "jti": "4f0c8a52"}
    people = ({"sub": f"u{number}", "name": f"User {number}"} | claims for number in range(TOKENS))
    return [jwt.encode(person, private, alg, {"kid": "k1"}) for person in people]


def _rate(tokens: Tokens, made: list[str], seconds: float) -> float:
    count, begun = 0, time.thread_time()
    while (took := time.thread_time() - begun) < seconds:
        for token in made[: TOKENS // 10]:
            try:
                tokens.read(token, NOW_MS)
            except TokenError:
                pass
        count += TOKENS // 10
        made = made[TOKENS // 10 :] + made[: TOKENS // 10]
    return count / took


def rows(found: Verified) -> list[Row]:
    made = []
    for alg, rates in found.good.items():
        target = HS256_TARGET if alg == "HS256" else None
        beside = {} if target is None else {"target": f"≥ {target:,}/s", "verdict": verdict(median(rates) >= target)}
        spread = f"{min(rates):,.0f}–{max(rates):,.0f}"
        made.append(Row(f"tokens verified, {alg}", f"{median(rates):,.0f}/s", spread, **beside))
    for alg, rates in found.forged.items():
        spread = f"{min(rates):,.0f}–{max(rates):,.0f}"
        made.append(Row(f"tokens refused, signed by another key, {alg}", f"{median(rates):,.0f}/s", spread))
    return made
