"""Sentences about invalid values, made from the errors of msgspec."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from greendot.ids import ID_RULE
from greendot.protocol.commands import Id
from greendot.protocol.mistakes import explained, struct_at


class Part(Struct):
    mode: Literal["live", "poll"] | None = None


class Whole(Struct):
    user: Id | None = None
    parts: list[Part] = []
    part: Part | None = None
    number: Annotated[int, Meta(ge=1)] = 1


def mistake(value: Any) -> str:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, Whole)
    return explained(raised.value, Whole)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"user": "-x"}, f"not a valid id: {ID_RULE} - at `$.user`"),
        ({"part": {"mode": "lvie"}}, "unknown value `lvie`; did you mean `live`? - at `$.part.mode`"),
        ({"part": {"mode": ""}}, "unknown value ``; use one of `live`, `poll` - at `$.part.mode`"),
        ({"parts": [{}, {"mode": "polll"}]}, "unknown value `polll`; did you mean `poll`? - at `$.parts[1].mode`"),
        ({"number": 0}, "Expected `int` >= 1 - at `$.number`"),
    ],
)
def test_a_mistake_is_explained_with_what_is_allowed(value: Any, sentence: str) -> None:
    assert mistake(value).replace("[...]", "[1]") == sentence


@pytest.mark.parametrize("path", ["", ".part", ".parts[...]"])
def test_an_object_is_found_by_its_path(path: str) -> None:
    found = struct_at(Whole, path)
    assert found is not None
    assert found.cls is (Part if path else Whole)


@pytest.mark.parametrize("path", [".user", ".none", ".part.mode", ".part.none.more"])
def test_a_path_without_an_object_is_not_found(path: str) -> None:
    assert struct_at(Whole, path) is None
