ALTER TABLE notifications ADD COLUMN ack INTEGER NOT NULL DEFAULT 0;
CREATE INDEX notifications_pending ON notifications (tenant, user, seq) WHERE ack = 1 AND acked_at IS NULL;
