"""Shares of the user count: each user is in the share of exactly one node."""

from __future__ import annotations

import pytest

from greendot.engine.redis import keys
from greendot.engine.redis.metrics import Census, UserCounts


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], ["c", "a", "b"], [f"n{number}" for number in range(200)]])
def test_the_shares_of_all_nodes_contain_each_user_once(nodes: list[str]) -> None:
    census = Census(None, "")  # type: ignore[arg-type]  # no server is called
    census._counted = {partition: UserCounts(partition, 2 * partition) for partition in range(keys.PARTITIONS)}
    shares = [census.share(node, nodes) for node in nodes]
    everybody = sum(range(keys.PARTITIONS))
    assert (sum(it.users for it in shares), sum(it.sessions for it in shares)) == (everybody, 2 * everybody)


def test_a_node_that_does_not_know_of_itself_yet_has_a_share_all_the_same() -> None:
    census = Census(None, "")  # type: ignore[arg-type]
    census._counted = {0: UserCounts(3, 4)}
    assert census.share("new", []) == UserCounts(3, 4)
