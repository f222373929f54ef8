-- The outbox: an app writes what Greendot is to send in the transaction of its own data, so that both happen or neither.
-- `greendot outbox install --url URL` runs this; psql -f outbox.sql does the same. PostgreSQL 14 or newer. Safe to run again.
--
--   INSERT INTO greendot_outbox (target, user_id, kind, body)
--   VALUES ('notification', 'alice', 'order.shipped', '{"order": 17}');
--   INSERT INTO greendot_outbox (target, user_id, kind, body, importance, collapse_key)
--   VALUES ('notification', 'alice', 'disk.full', '{"host": "db1"}', 'critical', 'disk-db1');
--   INSERT INTO greendot_outbox (target, room, user_id, body)
--   VALUES ('message', 'lobby', 'alice', '{"text": "hello"}');
--
-- Greendot reads the rows of one stream (an inbox, a room) in the order of their ids, writes each once, and removes it.

CREATE TABLE IF NOT EXISTS greendot_outbox (
    id         bigint NOT NULL GENERATED ALWAYS AS IDENTITY, -- unlike bigserial, the app needs no grant on a sequence
    tenant     text NOT NULL DEFAULT 'default',
    target     text NOT NULL CHECK (target IN ('notification', 'message')),
    user_id    text NOT NULL,            -- whose inbox it is for, or who says it
    room       text,                     -- of a message, or that a notification is about
    kind       text,                     -- of a notification
    name       text,                     -- of who says a message, as others read it
    body       jsonb NOT NULL,
    key        text,                     -- makes two rows one; without it every row is its own
    expires_at timestamptz,              -- of a notification
    created_at timestamptz NOT NULL DEFAULT now(),
    attempts   integer NOT NULL DEFAULT 0,
    error      text,                     -- why the last attempt failed
    failed_at  timestamptz,              -- set aside: not tried again until this is NULL
    shard      integer GENERATED ALWAYS AS ( -- rows of one stream are in one shard, which one relay has at a time
        hashtext(target || '/' || tenant || '/' || CASE target WHEN 'message' THEN coalesce(room, '') ELSE user_id END) & 15
    ) STORED,
    PRIMARY KEY (shard, id),             -- by id alone, the first rows of one shard would be looked for among all of another
    CHECK (CASE target WHEN 'message' THEN room IS NOT NULL ELSE kind IS NOT NULL END)
);

-- Columns that tables of earlier versions do not have. NULL: the default.
ALTER TABLE greendot_outbox
    ADD COLUMN IF NOT EXISTS importance   text,    -- of the push of a notification: low, normal (default), high, critical
    ADD COLUMN IF NOT EXISTS collapse_key text,    -- on a device, the push replaces an earlier one with the same value
    ADD COLUMN IF NOT EXISTS push         boolean; -- false: inbox only

CREATE INDEX IF NOT EXISTS greendot_outbox_waiting ON greendot_outbox (shard, id) WHERE failed_at IS NULL;
CREATE INDEX IF NOT EXISTS greendot_outbox_set_aside ON greendot_outbox (id) WHERE failed_at IS NOT NULL;

-- One word per transaction however many rows, since equal ones are told once.
CREATE OR REPLACE FUNCTION greendot_outbox_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('greendot_outbox', '');
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER greendot_outbox_tell AFTER INSERT ON greendot_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION greendot_outbox_tell();
