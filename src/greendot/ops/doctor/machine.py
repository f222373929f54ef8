"""Checks of the machine for the expected number of connections."""

from __future__ import annotations

from greendot.config import Settings
from greendot.ops.doctor.finding import Findings, error, note, or_ok, warning
from greendot.ops.facts_model import MachineFacts

BYTES_EACH = 20_000  # memory of a connection with its session; idle ones take half
SPARE_FILES = 200  # open files of a process beside its connections
BACKLOG = 1_024
SANE_YEARS = range(2024, 2100)


def machine(settings: Settings, found: MachineFacts, connections: int) -> Findings:
    """Yield the findings about the machine. `connections` is the number expected on it."""
    files = "any number of" if found.open_files is None else f"{found.open_files:,}"
    summary = f"{found.cores} cores, {files} open files, ready for {connections:,} connections"
    yield from or_ok("machine", summary, _machine(settings, found, connections))


def _machine(settings: Settings, found: MachineFacts, connections: int) -> Findings:
    workers = settings.server.workers
    needed = -(-connections // workers) + SPARE_FILES
    if found.open_files is not None and found.open_files < needed:
        do = f"Set LimitNOFILE={needed} in the service, or run `ulimit -n {needed}` before the start."
        yield warning(
            "machine",
            f"a process may open {found.open_files:,} files, but needs {needed:,} for {connections:,} "
            f"connections{f' on {workers} workers' if workers > 1 else ''}",
            "At this limit, new connections are not accepted.",
            do,
        )
    memory = connections * BYTES_EACH
    if found.memory_free is not None and found.memory_free < memory:
        free, wanted = found.memory_free / 1e6, memory / 1e6
        why = "Without free memory the system kills the server."
        what = f"{free:,.0f} MB of memory are free, but {connections:,} connections need up to {wanted:,.0f} MB"
        yield warning("machine", what, why, "Add memory, or plan fewer connections for each machine.")
    if found.somaxconn is not None and found.somaxconn < BACKLOG:
        why = "When many clients connect at once, some have to retry."
        do = f"Run: sysctl -w net.core.somaxconn={4 * BACKLOG}"
        yield warning("machine", f"net.core.somaxconn is {found.somaxconn}", why, do)
    if found.conntrack is not None and found.conntrack < 2 * connections:
        why = "When its table is full, the firewall drops packets of new and existing connections."
        do = f"Run: sysctl -w net.netfilter.nf_conntrack_max={4 * connections}"
        yield warning("machine", f"net.netfilter.nf_conntrack_max is {found.conntrack:,}", why, do)
    if workers > found.cores:
        why = "Workers that share a core slow each other down."
        yield note("server.workers", f"{workers} workers on {found.cores} cores", why, f"Use --workers {found.cores}")
    yield from _clock(settings, found)


def _clock(settings: Settings, found: MachineFacts) -> Findings:
    if found.year not in SANE_YEARS:
        why = "Expiry of tokens and certificates depends on the clock."
        yield error("machine", f"the clock shows the year {found.year}", why, "Set the clock, and run NTP (chrony).")
    elif found.clock_synchronised is False and not settings.server.dev:
        # In dev mode, the clock that checks a token has also set its expiry.
        why = "If the clock drifts, tokens of your app expire too early or too late."
        do = "Run NTP (chrony); for a container, on its host. If a hypervisor sets the clock, nothing is to do."
        yield note("machine", "the kernel reports no time synchronisation", why, do)
