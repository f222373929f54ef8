-- Times at which users were last seen, in milliseconds. Nodes write them in batches.
CREATE TABLE greendot_last_seen (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);
CREATE INDEX greendot_last_seen_by_time ON greendot_last_seen (at);
