"""Signers of tokens with real keys, and a JWKS server on loopback with configurable faults."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRETS = {"HS256": "2" * 32, "HS384": "3" * 48, "HS512": "5" * 64}
PUBLIC = ("RS256", "ES256", "EdDSA")
ALGORITHMS = (*SECRETS, *PUBLIC)
_JWK = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@dataclass(frozen=True)
class Signer:
    """Signer of tokens with a private key or a secret."""

    alg: str
    private: Any

    def sign(self, kid: str | None = None, *, alg: str | None = None, **claims: Any) -> str:
        headers = None if kid is None else {"kid": kid}
        return jwt.encode(claims, self.private, alg or self.alg, headers)

    @property
    def public(self) -> Any:
        return self.private.public_key()

    @property
    def pem(self) -> str:
        return self.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def jwk(self, kid: str | None = None, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(_JWK[self.alg].to_jwk(self.public))
        found.pop("key_ops", None)
        return found | ({} if kid is None else {"kid": kid}) | more

    def setting(self, kid: str, **more: Any) -> dict[str, Any]:
        """Return the key as an entry of the settings."""
        given = {"secret": self.private} if self.alg in SECRETS else {"public_key": self.pem}
        return {"kid": kid, "alg": self.alg} | given | more


@cache
def signer(alg: str, name: str = "") -> Signer:
    """Return the signer of this name. Cached: creating a key is slow."""
    match alg:
        case "RS256":
            return Signer(alg, rsa.generate_private_key(65537, 2048))
        case "ES256":
            return Signer(alg, ec.generate_private_key(ec.SECP256R1()))
        case "EdDSA":
            return Signer(alg, ed25519.Ed25519PrivateKey.generate())
    return Signer(alg, SECRETS[alg] + name)


@dataclass
class KeyServer:
    """JWKS server whose responses a test changes at run time."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    body: bytes | None = None  # replaces the keys
    head: str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    requests: int = 0
    hold: asyncio.Event = field(default_factory=asyncio.Event)  # responses wait until it is set
    trickle: bool = False  # send a byte every 20 ms, without end
    endless: bool = False  # send as fast as the client reads, without end
    paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hold.set()

    def document(self) -> bytes:
        return json.dumps({"keys": self.keys}).encode() if self.body is None else self.body

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            self.paths.append(head.split(b" ")[1].decode())
            await self.hold.wait()
            body = self.document()
            if self.trickle:
                writer.write(f"{self.head}content-length: 1000000\r\n\r\n".encode())
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            if self.endless:
                writer.write(f"{self.head}connection: close\r\n\r\n".encode())
                while True:
                    writer.write(b" " * 65536)
                    await writer.drain()
            writer.write(f"{self.head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def key_server(
    *keys: dict[str, Any], port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[KeyServer]:
    found = KeyServer(keys=[*keys])
    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await found.answer(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(answer, "127.0.0.1", port, ssl=tls)
    found.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    try:
        yield found
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
