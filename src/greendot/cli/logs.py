"""What a server logs, and how: lines for people on a terminal, JSON otherwise; ids as the settings want them."""

from __future__ import annotations

import logging
import sys

import structlog

from greendot.core.hashing import hashed
from greendot.ids import Id


def set_up_logging(level: str, hash_ids_with: bytes | None) -> None:
    """To standard error. With a key, ids in log lines are hashes made with it."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.format_exc_info,
                renderer,
            ]
        )
    )
    if hash_ids_with is not None:
        handler.addFilter(HashedIds(hash_ids_with))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # a malformed request is a client's affair


class HashedIds(logging.Filter):
    """Puts hashes in the place of ids. It lets every line through."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._shown(argument) for argument in record.args)
        return True

    def _shown(self, argument: object) -> object:
        return f"#{hashed(self._key, argument)}" if isinstance(argument, Id) else argument
