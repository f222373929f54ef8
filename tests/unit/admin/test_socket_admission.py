"""Admission of dashboard sockets: slots for viewers, and the waiting socket that is displaced."""

from __future__ import annotations

from greendot.admin.access import Viewer
from greendot.admin.socket import MOST_OPERATORS, MOST_PENDING, MOST_TENANT, MOST_TENANTS, ViewerAdmission

OPERATOR = Viewer("ops", nodes=True)


def of(tenant: str) -> Viewer:
    return Viewer("boss", nodes=False, tenant=tenant)


def admitted(admission: ViewerAdmission[object], viewer: Viewer) -> bool:
    socket = object()
    admission.open(socket)
    admission.key_sent(socket)
    return admission.admit(socket, viewer) is None


def test_the_oldest_silent_socket_is_displaced_before_one_whose_key_is_checked() -> None:
    admission: ViewerAdmission[object] = ViewerAdmission()
    assert [admission.open(number) for number in range(MOST_PENDING)] == [None] * MOST_PENDING
    admission.key_sent(0)
    assert admission.open("one more") == 1
    admission.remove(2)
    assert admission.open("in the place of the one that left") is None
    assert admission.pending == MOST_PENDING


def test_where_all_have_sent_a_key_the_oldest_is_displaced() -> None:
    admission: ViewerAdmission[object] = ViewerAdmission()
    for number in range(MOST_PENDING):
        admission.open(number)
        admission.key_sent(number)
    assert admission.open("an operator") == 0


def test_waiting_sockets_take_no_place_of_a_viewer() -> None:
    admission: ViewerAdmission[object] = ViewerAdmission()
    for number in range(MOST_PENDING):
        admission.open(number)
    assert [admitted(admission, OPERATOR) for _ in range(MOST_OPERATORS + 1)] == [True] * MOST_OPERATORS + [False]


def test_a_viewer_who_leaves_frees_the_place_also_when_removed_twice() -> None:
    admission: ViewerAdmission[object] = ViewerAdmission()
    admission.open("first")
    admission.key_sent("first")
    admission.admit("first", OPERATOR)
    for _ in range(MOST_OPERATORS - 1):
        admitted(admission, OPERATOR)
    assert not admitted(admission, OPERATOR)
    admission.remove("first")
    admission.remove("first")
    assert admitted(admission, OPERATOR)


def test_operators_and_each_tenant_have_places_of_their_own() -> None:
    admission: ViewerAdmission[object] = ViewerAdmission()
    tenants = MOST_TENANTS // MOST_TENANT
    for number in range(tenants):
        assert [admitted(admission, of(f"t{number}")) for _ in range(MOST_TENANT + 1)] == [True] * MOST_TENANT + [False]
    assert not admitted(admission, of("one tenant more"))
    assert admitted(admission, OPERATOR)
