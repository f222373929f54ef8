"""Contract of every store. Subclass `StoreSuite`, define how to open a store, and run it with pytest."""

from __future__ import annotations

import pytest

from greendot.errors import Unstorable
from greendot.presence.model import ManualStatus
from greendot.testing.api_key_suite import KeySuite
from greendot.testing.audit_suite import AuditSuite
from greendot.testing.inbox_suite import InboxSuite
from greendot.testing.last_seen_suite import LastSeenSuite
from greendot.testing.marker_suite import MarkerSuite
from greendot.testing.message_suite import MessageSuite
from greendot.testing.moderation_suite import ModerationSuite
from greendot.testing.page_suite import SnapshotSuite
from greendot.testing.presence_mode_suite import PresenceModeSuite
from greendot.testing.profile_suite import ProfileSuite
from greendot.testing.reaction_suite import ReactionSuite
from greendot.testing.restriction_suite import RestrictionSuite
from greendot.testing.revocation_suite import RevocationSuite
from greendot.testing.room_suite import RoomSuite
from greendot.testing.store_harness import BAD_TEXTS, T
from greendot.testing.user_data_suite import PeopleSuite
from greendot.testing.visibility_suite import PrivacySuite


class StoreSuite(
    RoomSuite,
    MarkerSuite,
    MessageSuite,
    ReactionSuite,
    InboxSuite,
    SnapshotSuite,
    LastSeenSuite,
    ProfileSuite,
    PresenceModeSuite,
    PrivacySuite,
    KeySuite,
    PeopleSuite,
    RevocationSuite,
    AuditSuite,
    ModerationSuite,
    RestrictionSuite,
):
    """Contract of `greendot.store.port`, as tests. Subclasses define `opened` and, if possible, `opened_twice`."""

    async def test_a_status_is_kept_with_a_growing_revision(self) -> None:
        async with self.opened() as store:
            first = await store.put_status(T, "ann", ManualStatus("busy", 5, "away"))
            second = await store.put_status(T, "ann", ManualStatus("invisible"))
            assert second.rev > first.rev
            assert await store.statuses([(T, "ann"), (T, "bob"), ("t2", "ann")]) == {(T, "ann"): second}
            assert (first.status, first.until, first.text) == ("busy", 5, "away")
            assert await store.statuses([]) == {}

    async def test_a_new_status_replaces_all_of_the_old_one(self) -> None:
        async with self.opened() as store:
            await store.put_status(T, "ann", ManualStatus("busy", until=5, text="in a meeting"))
            later = await store.put_status(T, "ann", ManualStatus("invisible", until=9, text="away"))
            assert later == ManualStatus("invisible", 9, "away", 2)
            assert await store.statuses([(T, "ann")]) == {(T, "ann"): later}
            assert await store.put_status(T, "ann", ManualStatus()) == ManualStatus(rev=3)

    async def test_a_status_with_text_that_no_store_keeps_is_refused(self) -> None:
        async with self.opened() as store:
            for text in BAD_TEXTS:
                with pytest.raises(Unstorable):
                    await store.put_status(T, "ann", ManualStatus("busy", text=text))
            assert await store.statuses([(T, "ann")]) == {}

    async def test_the_store_answers(self) -> None:
        async with self.opened() as store:
            await store.ping()
