-- Display names and info (a JSON object) that the app has set for users, by HTTP or in tokens. `at` is the time of the
-- last change: the request, or the issue of the token. An older token changes nothing.
CREATE TABLE greendot_user_info (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    name    text,
    info    bytea,
    at      bigint NOT NULL,
    rev     bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);

-- Changes are logged as those of visibility are, so that nodes find the changes that they have missed.
CREATE CONSTRAINT TRIGGER greendot_user_info_changed AFTER INSERT OR UPDATE OR DELETE ON greendot_user_info
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION greendot_visibility_changed('info');
