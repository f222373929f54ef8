"""Conversion of outbox rows to messages and notifications, and rows that can never be sent."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from greendot.app_outbox.rows import MessageRow, NoticeRow, parse_row
from greendot.protocol.codec import MAX_FRAME
from greendot.store.app_outbox import MOST_BODY, OutboxRow, SetAside
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft

ROW = OutboxRow(
    id=17,
    tenant="acme",
    target="notification",
    user="ann",
    room=None,
    kind="order.shipped",
    name=None,
    body='{"order": 17, "to": "Ann B."}',
    key=None,
    created_s=1_800_000_000.123456,
    expires_s=1_800_000_060.0,
)


def changed(**values: Any) -> OutboxRow:
    return msgspec.structs.replace(ROW, **values)


def message(**values: Any) -> OutboxRow:
    return changed(target="message", room="club", kind=None, name="Ann", **values)


def test_a_notification_is_a_notice_with_a_key_that_names_its_row() -> None:
    body = b'{"order":17,"to":"Ann B."}'
    key = "outbox-17-1800000000123456"
    notice = Notice("acme", "ann", "order.shipped", body, key, 1_800_000_000_123, 1_800_000_060_000)
    assert parse_row(ROW) == NoticeRow(17, notice)


def test_a_notification_carries_the_options_of_its_push() -> None:
    row = parse_row(changed(importance="critical", collapse_key="disk-db1", push=False, room="ops"))
    assert isinstance(row, NoticeRow)
    found = (row.notice.importance, row.notice.collapse, row.notice.push, row.notice.room)
    assert found == ("critical", "disk-db1", False, "ops")


@pytest.mark.parametrize("importance", ["low", "normal", "high", "critical"])
def test_each_importance_is_taken(importance: str) -> None:
    row = parse_row(changed(importance=importance, push=True, room=""))
    assert isinstance(row, NoticeRow)
    assert (row.notice.importance, row.notice.push, row.notice.room) == (importance, True, None)


def test_a_message_is_a_draft_for_a_room() -> None:
    draft = Draft("ann", "Ann", b"[1,2]", "own-key", 1_800_000_000_123)
    assert parse_row(message(key="own-key", body="[1, 2]")) == MessageRow(17, "acme", "club", draft)


def test_a_row_of_a_table_that_was_made_anew_is_another_row() -> None:
    one, other = parse_row(ROW), parse_row(changed(created_s=ROW.created_s + 1))
    assert isinstance(one, NoticeRow)
    assert isinstance(other, NoticeRow)
    assert one.notice.key != other.notice.key


def test_a_body_may_be_as_large_as_a_frame_without_the_spaces_between() -> None:
    count = (MAX_FRAME - 1) // 2
    letter = parse_row(changed(body="[" + ", ".join("1" * count) + "]"))
    assert isinstance(letter, NoticeRow)
    assert len(letter.notice.body) == 2 * count + 1


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (changed(tenant="a/b"), "tenant 'a/b'"),
        (changed(user=""), "user_id ''"),
        (changed(kind="two words"), "kind 'two words'"),
        (changed(kind=None), "kind ''"),
        (changed(key="-"), "key '-'"),
        (changed(user="u" * 129), "user_id 'uuuu"),
        (msgspec.structs.replace(message(), room="a b"), "room 'a b'"),
        (msgspec.structs.replace(message(), name="n" * 201), "name"),
        (changed(body='"' + "x" * MAX_FRAME + '"'), f"at most {MAX_FRAME} bytes, and has"),
        (changed(body='"' + "x" * (MOST_BODY - 1)), f"at most {MAX_FRAME} bytes"),
        (changed(body="[" * 30_000 + "]" * 30_000), "nested at most 64 levels"),
        (changed(body="[" * 65 + "]" * 65), "nested at most 64 levels"),
        (changed(body="1" + "0" * 309), "a number beyond 1.8e308"),
        (changed(importance="urgent"), "importance 'urgent' must be one of low, normal, high, critical"),
        (changed(importance=""), "importance '' must be one of"),
        (changed(importance="x" * 5_000), "importance 'xxx"),
        (changed(collapse_key="two words"), "collapse_key 'two words'"),
        (changed(collapse_key=""), "collapse_key ''"),
        (changed(room="a b"), "room 'a b'"),
        (message(importance="high"), "must be NULL in a message"),
        (message(collapse_key="c"), "must be NULL in a message"),
        (message(push=False), "must be NULL in a message"),
        (changed(created_s=math.inf), "created_at"),
        (changed(created_s=-1.0), "created_at"),
        (changed(created_s=math.nan), "created_at"),
        (changed(expires_s=-math.inf), "expires_at"),
    ],
)
def test_a_row_that_can_never_be_sent_is_set_aside_with_a_reason(row: OutboxRow, word: str) -> None:
    letter = parse_row(row)
    assert isinstance(letter, SetAside)
    assert letter.id == 17
    assert word in letter.reason
    assert len(letter.reason) < 300
