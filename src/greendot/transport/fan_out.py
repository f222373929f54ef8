"""Write of the same bytes to many sockets, in one call.

The distribution `greendot-speedups` (folder `speedups/`) has this function in C, and is used if it is installed. Both
functions pass the same tests. With 1,000 sockets the one in C takes about 15 % less processor time (docs/adr/0061).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

FAILED = -1  # bytes written, for a socket whose write failed

# Each incomplete write: index of the descriptor, bytes written. None if all writes are complete.
Incomplete = list[tuple[int, int]] | None


def send_each_in_python(descriptors: list[int], data: bytes) -> Incomplete:
    """Write `data` to each socket without waiting. Return the incomplete writes.

    A socket that takes nothing now has 0 bytes. A socket whose write failed has `FAILED`, and the others are written.
    """
    size, write = len(data), os.write
    incomplete: Incomplete = None
    for index, descriptor in enumerate(descriptors):
        try:
            sent = write(descriptor, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = FAILED
        if sent != size:
            incomplete = incomplete or []
            incomplete.append((index, sent))
    return incomplete


send_each: Callable[[list[int], bytes], Incomplete] = send_each_in_python
with suppress(ImportError):
    import greendot_speedups

    send_each = greendot_speedups.send_each
