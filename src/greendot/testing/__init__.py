"""Tools for tests against Greendot, and for authors of an engine or a store.

`ManualClock` moves time by hand. `serving` runs a whole server in this process. `WireClient` sends and receives raw
frames. `EngineSuite` and `StoreSuite` are the tests that every engine and store must pass. `hold` stops one call of
either at a named point. `turns` measures how long the event loop is held.
"""

from greendot.testing.clock import ManualClock, ShiftedClock
from greendot.testing.engine_harness import EngineHarness
from greendot.testing.engine_suite import EngineSuite
from greendot.testing.hold import Held, hold
from greendot.testing.server import Served, serving
from greendot.testing.store_suite import StoreSuite
from greendot.testing.turns import Aside, Turns, turns
from greendot.testing.wire import Closed, WireClient

__all__ = [
    "Aside",
    "Closed",
    "EngineHarness",
    "EngineSuite",
    "Held",
    "ManualClock",
    "Served",
    "ShiftedClock",
    "StoreSuite",
    "Turns",
    "WireClient",
    "hold",
    "serving",
    "turns",
]
