-- Display names and info (a JSON object) that the app has set for users, by HTTP or in tokens. `at` is the time of the
-- last change: the request, or the issue of the token. An older token changes nothing.
CREATE TABLE user_info (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    name   TEXT,
    info   BLOB,
    at     INTEGER NOT NULL,
    rev    INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

-- Changes are logged as those of visibility are, so that nodes find the changes that they have missed.
CREATE TRIGGER user_info_inserted AFTER INSERT ON user_info BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'info', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'info';
END;
CREATE TRIGGER user_info_updated AFTER UPDATE ON user_info BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'info', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'info';
END;
CREATE TRIGGER user_info_deleted AFTER DELETE ON user_info BEGIN
    INSERT INTO visibility_heads VALUES (OLD.tenant, 'info', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, OLD.user, token FROM visibility_heads
    WHERE tenant = OLD.tenant AND kind = 'info';
END;
