"""Greendot: presence, typing indicators, rooms and a durable notification inbox."""

TYPE_CHECKING = False  # type checkers know the name; `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from greendot.sdk import Server as Server

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Found when it is asked for: whoever only wants the version, or another part, loads no HTTP client.
    if name == "Server":
        from greendot.sdk import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
