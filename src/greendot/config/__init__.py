"""Settings: frozen and nested structs, with units in the names.

Flags override the environment, the environment overrides a TOML file, and the file overrides the defaults.
`GREENDOT_PRESENCE_GRACE_S` in the environment is `grace_s` under `[presence]` in the file. Relations between settings
are checked once, at the start. Every mistake is a sentence with the setting and what to do.
"""

from greendot.config.environment import strange_variables
from greendot.config.fields import check_id
from greendot.config.ingress import IngressSection
from greendot.config.monitoring import Log, Traces
from greendot.config.reference import commented, shown
from greendot.config.settings import LOCAL, Api, Auth, AuthKey, Kind, Limits, ServerSection, Settings, Tenant
from greendot.config.sources import Check, load
from greendot.config.visibility import Visibility

__all__ = [
    "LOCAL",
    "Api",
    "Auth",
    "AuthKey",
    "Check",
    "IngressSection",
    "Kind",
    "Limits",
    "Log",
    "ServerSection",
    "Settings",
    "Tenant",
    "Traces",
    "Visibility",
    "check_id",
    "commented",
    "load",
    "shown",
    "strange_variables",
]
