-- How changes of a user's presence reach watchers, where the app has chosen it: live or poll. Other users have no row.
CREATE TABLE presence_modes (
    tenant TEXT NOT NULL,
    user   TEXT NOT NULL,
    mode   TEXT NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

-- Changes get the next number of the kind `mode`, as changes of privacy do.
CREATE TRIGGER presence_modes_inserted AFTER INSERT ON presence_modes BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'mode', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'mode';
END;
CREATE TRIGGER presence_modes_updated AFTER UPDATE ON presence_modes BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'mode', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'mode';
END;
CREATE TRIGGER presence_modes_deleted AFTER DELETE ON presence_modes BEGIN
    INSERT INTO visibility_heads VALUES (OLD.tenant, 'mode', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, OLD.user, token FROM visibility_heads
    WHERE tenant = OLD.tenant AND kind = 'mode';
END;
