-- Users who may not send (`mute`) or not be there (`ban`): in a room, or with an empty room in the whole tenant.
CREATE TABLE restrictions (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    room   TEXT NOT NULL,
    kind   TEXT NOT NULL,
    until  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    reason TEXT,
    PRIMARY KEY (tenant, user, room, kind)
) WITHOUT ROWID;
CREATE INDEX restrictions_by_room ON restrictions (tenant, room, kind, user);
CREATE INDEX restrictions_by_end ON restrictions (until);

-- Seconds between two messages of one user; 0: no slow mode.
ALTER TABLE rooms ADD COLUMN slow_mode_s INTEGER NOT NULL DEFAULT 0;
-- Time of the last message of each user in rooms with slow mode.
CREATE TABLE slow_sends (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    room   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, room)
) WITHOUT ROWID;
CREATE INDEX slow_sends_by_room ON slow_sends (tenant, room);
CREATE INDEX slow_sends_by_time ON slow_sends (at);
