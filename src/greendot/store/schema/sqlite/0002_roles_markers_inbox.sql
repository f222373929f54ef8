ALTER TABLE rooms ADD COLUMN bus TEXT NOT NULL DEFAULT 'full';
CREATE INDEX rooms_open ON rooms (tenant, room) WHERE open;

ALTER TABLE members ADD COLUMN role TEXT NOT NULL DEFAULT 'member';

ALTER TABLE messages ADD COLUMN ref INTEGER;
ALTER TABLE messages ADD COLUMN op TEXT;

CREATE TABLE markers (
    tenant TEXT NOT NULL,
    room   TEXT NOT NULL,
    user   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (tenant, room, user)
) WITHOUT ROWID;

CREATE TABLE inboxes (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    head   INTEGER NOT NULL DEFAULT 0,
    unread INTEGER NOT NULL DEFAULT 0,
    unseen INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

CREATE TABLE notifications (
    tenant      TEXT NOT NULL,
    user        TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    id          TEXT NOT NULL,
    kind        TEXT NOT NULL,
    body        BLOB NOT NULL,
    key         TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    live_at     INTEGER,
    push_at     INTEGER,
    seen_at     INTEGER,
    read_at     INTEGER,
    archived_at INTEGER,
    acked_at    INTEGER,
    PRIMARY KEY (tenant, user, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX notifications_by_key ON notifications (tenant, user, key);
CREATE INDEX notifications_all ON notifications (tenant, user, seq) WHERE archived_at IS NULL;
CREATE INDEX notifications_archived ON notifications (tenant, user, seq) WHERE archived_at IS NOT NULL;
CREATE INDEX notifications_unread ON notifications (tenant, user, seq) WHERE read_at IS NULL;
CREATE INDEX notifications_unseen ON notifications (tenant, user, seq) WHERE seen_at IS NULL;
CREATE INDEX notifications_unacked ON notifications (tenant, user, seq) WHERE acked_at IS NULL;
CREATE INDEX notifications_by_age ON notifications (created_at);
CREATE INDEX notifications_by_expiry ON notifications (expires_at) WHERE expires_at IS NOT NULL;
