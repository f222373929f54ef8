CREATE TABLE hook_events (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant    TEXT NOT NULL,
    phase     INTEGER NOT NULL DEFAULT 0,
    type      TEXT NOT NULL,
    stream    TEXT NOT NULL,
    seq       INTEGER,
    state     TEXT,
    ids       TEXT,
    at        INTEGER NOT NULL,
    attempts  INTEGER NOT NULL DEFAULT 0,
    first_at  INTEGER,
    next_at   INTEGER,
    failed_at INTEGER,
    reason    TEXT
);
CREATE INDEX hook_events_by_phase ON hook_events (tenant, phase, id);

CREATE TABLE hooks (
    tenant     TEXT PRIMARY KEY,
    holder     TEXT NOT NULL DEFAULT '',
    until      INTEGER NOT NULL DEFAULT 0,
    stopped    TEXT NOT NULL DEFAULT '',
    stopped_at INTEGER,
    reason     TEXT
) WITHOUT ROWID
