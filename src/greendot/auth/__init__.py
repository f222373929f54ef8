"""Tokens, JWKS, API keys, grants, revocation and tenants."""
