-- Times at which users were last seen, in milliseconds. Nodes write them in batches.
CREATE TABLE last_seen (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;
CREATE INDEX last_seen_by_time ON last_seen (at);
