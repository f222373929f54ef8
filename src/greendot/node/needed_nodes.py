"""Nodes that must confirm a change before it is answered.

The engine knows the nodes, and the sessions of each user. An engine that has just lost its data shows neither, although
the nodes and their connections still exist. Every node that lived before the loss must then confirm the change.
"""

from __future__ import annotations

from greendot.engine.port import Engine


async def live_nodes(engine: Engine) -> set[str]:
    """Return the live nodes, with those whose entries the engine may have lost."""
    states = {info.node: info.state for info in await engine.nodes()}
    known = {node for node, state in states.items() if state == "live"}
    # A dead node stays in the engine's list. A missing one was lost with the data, or has started just now.
    return known.union(node for node in engine.live_nodes() if node not in states)


async def nodes_of_user(engine: Engine, tenant: str, user: str) -> set[str]:
    """Return the nodes with sessions of the user; all live nodes while the engine may lack some of the sessions."""
    was_restoring = engine.is_restoring(tenant, user)
    nodes = {entry.node for entry in await engine.sessions(tenant, user)}
    if was_restoring or engine.is_restoring(tenant, user):  # the read itself may have found the loss
        nodes |= await live_nodes(engine)
    return nodes
