-- slow_mode_s: seconds that slow mode was set to; 0: ended.
ALTER TABLE greendot_audit ADD COLUMN slow_mode_s integer;
