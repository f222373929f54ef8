-- recheck: the status of the user was set while a worker held the push.
ALTER TABLE greendot_pushes ADD COLUMN recheck boolean NOT NULL DEFAULT false;
CREATE INDEX greendot_pushes_waiting ON greendot_pushes (tenant, user_id) WHERE due_at IS NOT NULL;
