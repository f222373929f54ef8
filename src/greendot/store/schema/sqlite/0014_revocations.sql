CREATE TABLE revocations (
    tenant     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    value      TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    before     INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, value)
) WITHOUT ROWID;
CREATE UNIQUE INDEX revocations_by_number ON revocations (number);
CREATE INDEX revocations_by_end ON revocations (expires_at);

-- One row: the last number that was given. It stays when what has it is removed.
CREATE TABLE revocations_head (number INTEGER NOT NULL);
INSERT INTO revocations_head VALUES (0);
