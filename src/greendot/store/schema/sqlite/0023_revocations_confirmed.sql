-- The last number up to which a server that is alone on the store has ended everything that is covered.
ALTER TABLE revocations_head ADD COLUMN confirmed INTEGER NOT NULL DEFAULT 0;
