"""Settings of the Centrifuge protocol, and their checks."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from greendot.config.fields import Mistakes, Secret, about
from greendot.config.webhooks import Webhooks, check_asked

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


class CentrifugeNamespace(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of the channels whose name begins with the namespace and a colon."""

    subscribe: Annotated[bool, about("clients may subscribe without a subscription token")] = True
    publish: Annotated[bool, about("clients that have subscribed may publish")] = True
    history: Annotated[bool, about("publications are stored as messages of the room; false: sent as signals")] = True
    recover: Annotated[bool, about("clients recover missed publications; needs history")] = True
    presence: Annotated[bool, about("clients may read who is in the channel")] = True
    join_leave: Annotated[bool, about("clients that ask for it are told who joins and leaves")] = True


class Centrifuge(Struct, frozen=True, forbid_unknown_fields=True):
    """Centrifuge protocol of one tenant."""

    enabled: Annotated[
        bool, about("serve Centrifuge clients (/connection/websocket) and Centrifugo's server API (/api) of the tenant")
    ] = False
    namespaces: Annotated[
        dict[str, CentrifugeNamespace],
        about("rules of channels by namespace; `default`: channels without one. None: all channels have the defaults"),
    ] = {}
    rpc_url: Annotated[str, about("URL of the app that answers the calls (`rpc`) of clients; empty: error 108")] = ""
    rpc_secret: Annotated[Secret, about("secret that signs these requests; at least 32 characters")] = ""
    rpc_timeout_s: Annotated[float, Meta(gt=0, le=10), about("time limit of a request")] = 3.0
    rpc_concurrent: Annotated[int, Meta(ge=1, le=256), about("requests at the same time, for each node")] = 16


def check_centrifuge(section: str, given: Centrifuge, common: Webhooks) -> Mistakes:
    """Yield the mistakes in the settings of the Centrifuge protocol of a tenant."""
    url, secret = (f"{section}.rpc_url", given.rpc_url), (f"{section}.rpc_secret", given.rpc_secret)
    yield from check_asked(url, secret, common.allow_private, "no call would be answered")
    for name in given.namespaces:
        if not _NAME.match(name):
            yield (
                f"{section}.namespaces: {name!r} is no name of a namespace. "
                "Use 1 to 64 of the characters A-Z a-z 0-9 _ . and -."
            )
