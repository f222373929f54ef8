"""Hashes in place of personal data."""

from __future__ import annotations

from greendot.ids import hash_key, hashed

KEY = b"k" * 32


def test_equal_texts_are_equal_under_a_key_and_under_no_other() -> None:
    assert hashed(KEY, "203.0.113.7") == hashed(KEY, "203.0.113.7")
    assert hashed(KEY, "203.0.113.7") != hashed(KEY, "203.0.113.8")
    assert hashed(KEY, "203.0.113.7") != hashed(b"other", "203.0.113.7")
    assert len(hashed(KEY, "")) == 16


def test_a_text_that_was_never_valid_unicode_is_hashed_too() -> None:
    assert hashed(KEY, b"Mozilla \xff".decode(errors="surrogateescape")) != hashed(KEY, "Mozilla ")


def test_the_key_is_the_one_given_else_made_of_the_secret_and_never_the_secret_itself() -> None:
    given, made = hash_key("g" * 32, "s" * 32), hash_key("", "s" * 32)
    assert given is not None
    assert made is not None
    assert given == hash_key("g" * 32, "other")
    assert len({given, made, b"s" * 32, hash_key("s" * 32, "")}) == 4
    assert hash_key("", "") is None


def test_of_a_long_key_the_first_sixty_four_bytes_count() -> None:
    key = bytes(range(70))
    assert hashed(key, "ann") == hashed(key[:64], "ann") != hashed(key[:63], "ann")
