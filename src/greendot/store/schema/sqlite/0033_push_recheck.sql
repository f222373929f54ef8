-- recheck: the status of the user was set while a worker held the push.
ALTER TABLE pushes ADD COLUMN recheck INTEGER NOT NULL DEFAULT 0;
CREATE INDEX pushes_waiting ON pushes (tenant, user) WHERE due_at IS NOT NULL;
