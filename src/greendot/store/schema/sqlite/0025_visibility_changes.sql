-- Number of the last change of each kind (privacy, contacts, members). The token is random: after a restore of a backup
-- the same number has another token.
CREATE TABLE visibility_heads (
    tenant TEXT NOT NULL,
    kind   TEXT NOT NULL,
    number INTEGER NOT NULL,
    token  INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;

-- The latest 10,000 changes of each kind. Triggers write them, so that no statement can forget to.
CREATE TABLE visibility_changes (
    tenant TEXT NOT NULL,
    kind   TEXT NOT NULL,
    number INTEGER NOT NULL,
    user   TEXT NOT NULL,
    token  INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, number)
) WITHOUT ROWID;

CREATE TRIGGER visibility_changes_limited AFTER INSERT ON visibility_changes BEGIN
    DELETE FROM visibility_changes
    WHERE tenant = NEW.tenant AND kind = NEW.kind AND number = NEW.number - 10000;
END;

CREATE TRIGGER privacy_inserted AFTER INSERT ON privacy BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'privacy', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'privacy';
END;
CREATE TRIGGER privacy_updated AFTER UPDATE ON privacy BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'privacy', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'privacy';
END;
CREATE TRIGGER privacy_deleted AFTER DELETE ON privacy BEGIN
    INSERT INTO visibility_heads VALUES (OLD.tenant, 'privacy', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, OLD.user, token FROM visibility_heads
    WHERE tenant = OLD.tenant AND kind = 'privacy';
END;

CREATE TRIGGER contacts_inserted AFTER INSERT ON contacts BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'contacts', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'contacts';
END;
CREATE TRIGGER contacts_updated AFTER UPDATE ON contacts BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'contacts', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'contacts';
END;
CREATE TRIGGER contacts_deleted AFTER DELETE ON contacts BEGIN
    INSERT INTO visibility_heads VALUES (OLD.tenant, 'contacts', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, OLD.user, token FROM visibility_heads
    WHERE tenant = OLD.tenant AND kind = 'contacts';
END;

CREATE TRIGGER members_inserted AFTER INSERT ON members BEGIN
    INSERT INTO visibility_heads VALUES (NEW.tenant, 'members', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, NEW.user, token FROM visibility_heads
    WHERE tenant = NEW.tenant AND kind = 'members';
END;
CREATE TRIGGER members_deleted AFTER DELETE ON members BEGIN
    INSERT INTO visibility_heads VALUES (OLD.tenant, 'members', 1, random())
    ON CONFLICT DO UPDATE SET number = number + 1, token = excluded.token;
    INSERT INTO visibility_changes SELECT tenant, kind, number, OLD.user, token FROM visibility_heads
    WHERE tenant = OLD.tenant AND kind = 'members';
END;

CREATE INDEX privacy_hiding ON privacy (tenant, user) WHERE last_seen = 'hidden' OR hide_from <> '';
