-- The same as the index by key, in another order: a user's messages are found by it as well.
CREATE UNIQUE INDEX messages_by_author ON messages (tenant, user, room, key);
DROP INDEX messages_by_key;
