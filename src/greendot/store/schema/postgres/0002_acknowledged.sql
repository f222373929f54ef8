ALTER TABLE greendot_notifications ADD COLUMN ack boolean NOT NULL DEFAULT false;
CREATE INDEX greendot_notifications_pending ON greendot_notifications (tenant, user_id, seq)
    WHERE ack AND acked_at IS NULL;
