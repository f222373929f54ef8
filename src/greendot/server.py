"""Alias of `greendot.sdk`, the name in documented imports: `from greendot.server import NotFound`."""

from greendot.sdk import *  # noqa: F403
from greendot.sdk import __all__ as __all__
