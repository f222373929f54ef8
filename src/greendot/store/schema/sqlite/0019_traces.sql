-- In the course of what a record was written (W3C traceparent), where that was said.
ALTER TABLE messages ADD COLUMN traceparent TEXT;
ALTER TABLE notifications ADD COLUMN traceparent TEXT;
