-- The last number up to which a server that is alone on the store has ended everything that is covered.
ALTER TABLE greendot_revocations_head ADD COLUMN confirmed bigint NOT NULL DEFAULT 0;
-- When that server last said so.
ALTER TABLE greendot_revocations_head ADD COLUMN served_at timestamptz;
