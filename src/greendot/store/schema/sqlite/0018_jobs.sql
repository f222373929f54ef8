CREATE TABLE jobs (
    name     TEXT PRIMARY KEY,
    schedule TEXT NOT NULL,
    next_at  INTEGER NOT NULL,
    fence    INTEGER NOT NULL DEFAULT 0,
    holder   TEXT,
    until    INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    ran_at   INTEGER,
    cursor   TEXT
) WITHOUT ROWID;

CREATE TABLE job_runs (
    name       TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    holder     TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    outcome    TEXT NOT NULL DEFAULT 'running',
    done       INTEGER NOT NULL DEFAULT 0,
    note       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (name, fence)
) WITHOUT ROWID;

-- When somebody was last reminded of what is unread.
CREATE TABLE reminders (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;
