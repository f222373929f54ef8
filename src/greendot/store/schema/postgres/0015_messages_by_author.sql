-- The same as the index by key, in another order: a user's messages are found by it as well, and it costs less to write
-- than the one before. The tenant comes last, because the lookup by key must not be tempted by the primary key.
CREATE UNIQUE INDEX greendot_messages_by_author ON greendot_messages (user_id, room, key, tenant);
DROP INDEX greendot_messages_by_key;
