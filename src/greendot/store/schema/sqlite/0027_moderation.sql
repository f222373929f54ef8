ALTER TABLE rooms ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
-- Grows whenever the content of a message is erased, so that nodes read again what they have in memory.
ALTER TABLE rooms ADD COLUMN erasures INTEGER NOT NULL DEFAULT 0;
-- Random number of each new room: a room that was deleted and created again is another room.
ALTER TABLE rooms ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- Changes of a message are found by its number.
CREATE INDEX messages_by_ref ON messages (tenant, room, ref, seq) WHERE ref IS NOT NULL;

-- Rooms that were deleted, until a job has removed all their rows. The room itself is removed at once.
CREATE TABLE room_deletions (
    tenant     TEXT NOT NULL,
    room       TEXT NOT NULL,
    deleted_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, room)
) WITHOUT ROWID;

-- Who changed what. The entries of a tenant are numbered without gaps.
CREATE TABLE audit (
    tenant TEXT NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    room   TEXT,
    user   TEXT,
    ref    INTEGER,
    reason TEXT,
    until  INTEGER,
    PRIMARY KEY (tenant, number)
) WITHOUT ROWID;
CREATE INDEX audit_by_room ON audit (tenant, room, number) WHERE room IS NOT NULL;
CREATE INDEX audit_by_user ON audit (tenant, user, number) WHERE user IS NOT NULL;
CREATE INDEX audit_by_action ON audit (tenant, action, number);
CREATE INDEX audit_by_time ON audit (at);

CREATE TABLE audit_heads (
    tenant TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) WITHOUT ROWID;
