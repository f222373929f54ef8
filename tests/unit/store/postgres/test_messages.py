"""Group commit in PostgreSQL: an unstorable call costs the others no second transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from greendot.errors import Unstorable
from greendot.store.postgres import PostgresStore
from greendot.testing.store_harness import BAD_TEXTS, T, draft, notice, numbers

from .places import opened


class Transactions:
    """Counter of the transactions that a store begins."""

    def __init__(self, store: PostgresStore) -> None:
        self.begun = 0
        self._original: Callable[..., Awaitable[Any]] = store._links.transact_once
        store._links.transact_once = self._counted  # type: ignore[method-assign]

    async def _counted(self, *args: Any) -> Any:
        self.begun += 1
        return await self._original(*args)


@pytest.mark.parametrize("text", BAD_TEXTS)
async def test_text_that_cannot_be_written_never_reaches_a_batch(postgres: str, text: str) -> None:
    async with opened(postgres) as store:
        await store.put_room(T, "r1", open=True)
        counted = Transactions(store)
        messages = [store.append(T, "r1", draft(key=f"k{n}")) for n in range(50)]
        bad = [store.append(T, "r1", structs.replace(draft(key=f"b{n}"), name=text)) for n in range(10)]
        results = await asyncio.gather(*bad, *messages, return_exceptions=True)
        assert [isinstance(result, Unstorable) for result in results] == [True] * 10 + [False] * 50
        assert counted.begun == 1
        assert await numbers(store) == [*range(1, 51)]
        notices = [store.notify([notice("ann", f"k{n}")]) for n in range(50)]
        worse = [store.notify([structs.replace(notice(key=f"b{n}"), collapse=text)]) for n in range(10)]
        results = await asyncio.gather(*worse, *notices, return_exceptions=True)
        assert [isinstance(result, Unstorable) for result in results] == [True] * 10 + [False] * 50
        assert counted.begun == 2
        assert (await store.inbox(T, "ann")).head == 50
