"""Tokens: signed claims that say who a client is. Whose signature counts, and how tokens are read and made."""

from greendot.tokens.configured import make_tokens
from greendot.tokens.tokens import Tokens

__all__ = ["Tokens", "make_tokens"]
