CREATE TABLE push_devices (
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    device     TEXT NOT NULL,
    provider   TEXT NOT NULL,
    token      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, device)
) WITHOUT ROWID;
CREATE UNIQUE INDEX push_devices_by_token ON push_devices (tenant, provider, token);
CREATE INDEX push_devices_by_use ON push_devices (used_at);

CREATE TABLE push_choices (
    tenant       TEXT NOT NULL,
    user         TEXT NOT NULL,
    zone         TEXT NOT NULL,
    quiet_begins INTEGER NOT NULL,
    quiet_ends   INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

-- due_at NULL: it is over. While somebody holds it, due_at is when the lease ends.
CREATE TABLE pushes (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant       TEXT NOT NULL,
    user         TEXT NOT NULL,
    seq          INTEGER NOT NULL,
    notification TEXT NOT NULL,
    importance   TEXT NOT NULL,
    room         TEXT,
    collapse     TEXT,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER,
    holder       TEXT,
    attempts     INTEGER NOT NULL DEFAULT 0,
    reason       TEXT NOT NULL DEFAULT '',
    results      BLOB NOT NULL DEFAULT '[]',
    sent_at      INTEGER,
    over_at      INTEGER,
    dead         INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX pushes_due ON pushes (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX pushes_of ON pushes (tenant, notification);
CREATE INDEX pushes_sent ON pushes (tenant, user, sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX pushes_over ON pushes (over_at) WHERE over_at IS NOT NULL;
CREATE INDEX pushes_dead ON pushes (tenant, id) WHERE dead = 1;
