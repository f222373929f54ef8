from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from greendot.errors import Refused
from greendot.node.commands import check_may_send, merge_commands
from greendot.protocol.codes import Err
from greendot.protocol.commands import Bye, Heartbeat


def nothing(connection: Any, session: Any, command: Any) -> None: ...


def test_tables_become_one() -> None:
    assert merge_commands({Bye: nothing}, {Heartbeat: nothing}) == {Bye: nothing, Heartbeat: nothing}


def test_two_handlers_for_one_command_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="Bye"):
        merge_commands({Bye: nothing}, {Bye: nothing})


@pytest.mark.parametrize("send", [True, False])
def test_a_token_that_only_listens_may_not_send(send: bool) -> None:
    session: Any = SimpleNamespace(grants=SimpleNamespace(send=send))
    if send:
        check_may_send(session)
        return
    with pytest.raises(Refused) as caught:
        check_may_send(session)
    assert caught.value.code == Err.FORBIDDEN
