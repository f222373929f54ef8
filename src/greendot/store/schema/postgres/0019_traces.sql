-- In the course of what a record was written (W3C traceparent), where that was said.
ALTER TABLE greendot_messages ADD COLUMN traceparent text;
ALTER TABLE greendot_notifications ADD COLUMN traceparent text;
