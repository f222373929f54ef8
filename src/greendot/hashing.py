"""Keyed hashes in place of what is known of people: equal texts can be told to be equal, and not what they are.

Without a key there are too few addresses and browsers, and names are too easily guessed: who has a plain hash finds
the text by trying them all.
"""

from __future__ import annotations

from hashlib import blake2b

_SIZE = 8  # bytes: enough to tell the users of a tenant apart


def hashed(key: bytes, text: str) -> str:
    """Sixteen hexadecimal digits that stand for the text under this key."""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=_SIZE, key=key[:64]).hexdigest()


def hash_key(given: str, secret: str) -> bytes | None:
    """The key to hash with: made of the one that is given, else of the servers' secret. None if there is neither."""
    if not (given or secret):
        return None
    return blake2b((given or secret).encode(), person=b"greendot-given" if given else b"greendot-hash").digest()
