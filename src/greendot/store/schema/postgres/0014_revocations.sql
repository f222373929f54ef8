CREATE TABLE greendot_revocations (
    tenant     text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    before     bigint NOT NULL,
    number     bigint NOT NULL,
    PRIMARY KEY (tenant, kind, value)
);
CREATE UNIQUE INDEX greendot_revocations_by_number ON greendot_revocations (number);
CREATE INDEX greendot_revocations_by_end ON greendot_revocations (expires_at);

-- One row: the last number that was given. Who takes the next holds it until the commit, so that they become visible
-- in their order.
CREATE TABLE greendot_revocations_head (number bigint NOT NULL);
INSERT INTO greendot_revocations_head VALUES (0);
