-- How changes of a user's presence reach watchers, where the app has chosen it: live or poll. Other users have no row.
CREATE TABLE greendot_presence_modes (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    mode    text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, user_id)
);
-- Changes get the next number of the kind `mode`, as changes of privacy do.
CREATE CONSTRAINT TRIGGER greendot_presence_modes_changed AFTER INSERT OR UPDATE OR DELETE ON greendot_presence_modes
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION greendot_visibility_changed('mode');
