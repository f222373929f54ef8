"""Settings: frozen, nested, units in the names. From flags, then the environment, then a TOML file, then defaults.

`GREENDOT_PRESENCE_GRACE_S` in the environment is `grace_s` under `[presence]` in the file. Relations between
settings are checked once, at the start, with a sentence a person can act on.
"""

from greendot.settings.checks import check
from greendot.settings.commented import commented
from greendot.settings.door import Door
from greendot.settings.logs import Log, Traces
from greendot.settings.mistakes import Mistake
from greendot.settings.names import check_id
from greendot.settings.sections import Api, Auth, AuthKey, Kind, Limits, Server, Settings, Tenant
from greendot.settings.shown import shown
from greendot.settings.sources import Look, Read, load, read
from greendot.settings.variables import strange_variables
from greendot.settings.visibility import Visibility

__all__ = [
    "Api",
    "Auth",
    "AuthKey",
    "Door",
    "Kind",
    "Limits",
    "Log",
    "Look",
    "Mistake",
    "Read",
    "Server",
    "Settings",
    "Tenant",
    "Traces",
    "Visibility",
    "check",
    "check_id",
    "commented",
    "load",
    "read",
    "shown",
    "strange_variables",
]
