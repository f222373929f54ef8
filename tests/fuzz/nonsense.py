"""Random values of any type that the code declares."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from hypothesis import reject
from hypothesis import strategies as st
from msgspec import inspect

ODD_TEXT = st.text(max_size=20)
NUMBERS = st.integers(-2, 10) | st.integers(-(2**63), 2**63 - 1)
# Most of these never occur as ids, names or numbers.
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=8,
)


class Nonsense:
    """Strategies for random values, with some existing names, so that not all values are unknown."""

    def __init__(self, known: Iterable[str] = ("default", "lobby", "alice", "")) -> None:
        self.names = st.sampled_from([*known]) | ODD_TEXT
        self._simple: dict[type, st.SearchStrategy[Any]] = {
            inspect.IntType: NUMBERS,
            inspect.FloatType: st.floats(),
            inspect.StrType: self.names,
            inspect.BytesType: st.binary(max_size=40),
            inspect.BoolType: st.booleans(),
            inspect.NoneType: st.none(),
            inspect.RawType: JSON.map(msgspec.json.encode).map(msgspec.Raw),
            inspect.AnyType: JSON,
            inspect.CustomType: JSON,  # msgspec treats `object` as one
        }

    def of(self, kind: Any) -> st.SearchStrategy[Any]:
        """Return a strategy for all values that a decoder accepts as `kind`, beyond the bounds of texts and numbers."""
        return self._of(inspect.type_info(kind))

    def _of(self, kind: inspect.Type) -> st.SearchStrategy[Any]:
        match kind:
            case inspect.StructType() | inspect.NamedTupleType():
                fields = {field.name: self._of(field.type) for field in kind.fields}
                return st.builds(partial(_make, kind.cls), **fields)
            case inspect.UnionType():
                return st.one_of(*map(self._of, kind.types))
            case inspect.VarTupleType():
                return st.lists(self._of(kind.item_type), max_size=4).map(tuple)
            case inspect.ListType():
                return st.lists(self._of(kind.item_type), max_size=4)
            case inspect.TupleType():
                return st.tuples(*map(self._of, kind.item_types))
            case inspect.DictType():
                return st.dictionaries(self._of(kind.key_type), self._of(kind.value_type), max_size=4)
            case inspect.Metadata():  # constraints such as a pattern, in addition to the type
                return self._of(kind.type)
            case inspect.LiteralType():
                return st.sampled_from(kind.values)
        return self._simple[type(kind)]


def _make(kind: type, /, **fields: Any) -> Any:
    """Make a value of `kind`. Fields that its own rules exclude together are drawn again."""
    try:
        return kind(**fields)
    except ValueError:
        reject()
