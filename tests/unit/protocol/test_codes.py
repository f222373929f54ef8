from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.protocol.codes import RETRYABLE, Close, Err, invites_return


@given(st.integers(4000, 4499))
def test_close_codes_below_4500_invite_to_reconnect(code: int) -> None:
    assert invites_return(code)


@given(st.one_of(st.integers(0, 3999), st.integers(4500, 4999)))
def test_the_upper_half_and_the_codes_of_the_standard_do_not(code: int) -> None:
    assert not invites_return(code)


def test_the_numbers_are_those_other_programs_are_written_against() -> None:
    assert {code.name: int(code) for code in Close if code >= 4000} == {
        "DRAINING": 4000,
        "TOO_SLOW": 4001,
        "HEARTBEAT_LOST": 4002,
        "OVERLOADED": 4003,
        "RESYNC": 4004,
        "TOKEN_EXPIRED": 4005,
        "BAD_TOKEN": 4500,
        "REVOKED": 4501,
        "PROTOCOL_ERROR": 4502,
        "DISCONNECTED": 4503,
        "VERSION": 4504,
        "REPLACED": 4505,
    }


def test_every_close_code_may_stand_in_a_close_frame() -> None:
    # RFC 6455, 7.4: codes that the standard defines for use on the wire, and the private ones.
    allowed = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011}
    assert all(code in allowed or 4000 <= code <= 4999 for code in Close)


def test_only_what_may_pass_by_itself_is_worth_another_try() -> None:
    assert {Err.RATE_LIMITED, Err.UNAVAILABLE, Err.INTERNAL} == RETRYABLE
