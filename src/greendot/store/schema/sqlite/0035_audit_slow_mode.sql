-- slow_mode_s: seconds that slow mode was set to; 0: ended.
ALTER TABLE audit ADD COLUMN slow_mode_s INTEGER;
