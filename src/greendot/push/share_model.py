"""Fair shares of a worker's slots among tenants.

A slot that is given to a hanging endpoint stays taken until the call times out. So a tenant may hold at most as many
slots as remain free: the first gets half of all slots, the next half of the rest, and as slots come back `n` tenants
approach 1/(n + 1) each. Within that bound the tenant that holds the fewest is served first.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace


def divide(due: Mapping[str, int], free: int, held: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return how many of each tenant's `due` items to take into `free` slots.

    `held`: slots each tenant occupies already. Without it nothing is kept free for others.
    """
    taken: dict[str, int] = {}
    heap = [((held or {}).get(tenant, 0), tenant) for tenant, count in due.items() if count > 0]
    heapify(heap)
    while heap and free > 0:
        count, tenant = heap[0]
        if held is not None and count >= free:
            break  # the other tenants hold at least as many
        taken[tenant] = taken.get(tenant, 0) + 1
        free -= 1
        if taken[tenant] < due[tenant]:
            heapreplace(heap, (count + 1, tenant))
        else:
            heappop(heap)
    return taken
