"""Native codes as Centrifuge codes."""

from __future__ import annotations

import pytest

from greendot.compat.centrifuge.codes_model import CfClose, CfErr, close_of, error_of
from greendot.errors import Refused
from greendot.protocol.codes import RETRYABLE, Close, Err, invites_return


def returns(code: int) -> bool:
    """Return whether a Centrifuge client reconnects after a close code."""
    return code < 3500 or 4000 <= code < 4500


@pytest.mark.parametrize("code", [code for code in Close if code >= 4000])
def test_clients_return_after_the_same_closes_as_native_ones(code: Close) -> None:
    found, reason = close_of(code, "", is_greeted=True)
    assert returns(found) == invites_return(code)
    assert 3000 <= found < 4000
    assert reason


def test_codes_that_clients_know_stay() -> None:
    assert close_of(Close.TOO_BIG, "", is_greeted=True) == (1009, "closed")
    assert close_of(4900, "custom", is_greeted=True) == (4900, "custom")


def test_refusals_before_the_connect_have_codes_of_their_own() -> None:
    assert close_of(Close.OVERLOADED, "busy", is_greeted=False) == (CfClose.SERVER_ERROR, "busy")
    assert close_of(Close.REVOKED, "", is_greeted=False) == (CfClose.INVALID_TOKEN, "invalid token")


@pytest.mark.parametrize("code", Err)
def test_errors_that_may_be_repeated_are_temporary(code: Err) -> None:
    error = error_of(Refused(code, "why"))
    assert error.message == "why"
    assert error.temporary == (code in RETRYABLE or code == Err.SLOW_MODE)


def test_a_room_that_is_being_deleted_may_be_tried_again() -> None:
    error = error_of(Refused(Err.NO_SUCH_ROOM, "why", retry_in_ms=1_000))
    assert (error.code, error.temporary) == (CfErr.UNKNOWN_CHANNEL, True)
    assert not error_of(Refused(Err.NO_SUCH_ROOM, "why")).temporary


def test_an_unknown_code_is_an_internal_error() -> None:
    assert error_of(Refused("new", "why")).code == CfErr.INTERNAL
