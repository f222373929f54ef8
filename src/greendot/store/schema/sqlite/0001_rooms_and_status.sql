CREATE TABLE rooms (
    tenant      TEXT NOT NULL,
    room        TEXT NOT NULL,
    open        INTEGER NOT NULL,
    head        INTEGER NOT NULL DEFAULT 0,
    members_rev INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, room)
) WITHOUT ROWID;

CREATE TABLE members (
    tenant TEXT NOT NULL,
    room   TEXT NOT NULL,
    user   TEXT NOT NULL,
    PRIMARY KEY (tenant, room, user)
) WITHOUT ROWID;
CREATE INDEX members_by_user ON members (tenant, user, room);

CREATE TABLE messages (
    tenant TEXT NOT NULL,
    room   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    id     TEXT NOT NULL,
    user   TEXT NOT NULL,
    name   TEXT,
    body   BLOB NOT NULL,
    key    TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, room, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_key ON messages (tenant, room, user, key);

CREATE TABLE status (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    status TEXT NOT NULL,
    until  INTEGER,
    text   TEXT,
    rev    INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;
