-- Number of the last change of each kind (privacy, contacts, members). The token is random: after a restore of a backup
-- the same number has another token.
CREATE TABLE greendot_visibility_heads (
    tenant text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    token  bigint NOT NULL,
    PRIMARY KEY (tenant, kind)
);

-- The latest 10,000 changes of each kind.
CREATE TABLE greendot_visibility_changes (
    tenant  text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    token   bigint NOT NULL,
    PRIMARY KEY (tenant, kind, number)
);

-- Triggers write the changes, so that nodes of the version before do so too. They run at the commit: the row of the head
-- is the last lock of every transaction. A transaction holds it until the end of its commit, so that changes become
-- visible in the order of their numbers.
CREATE FUNCTION greendot_visibility_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    its_tenant text := CASE TG_OP WHEN 'DELETE' THEN OLD.tenant ELSE NEW.tenant END;
    its_user   text := CASE TG_OP WHEN 'DELETE' THEN OLD.user_id ELSE NEW.user_id END;
    its_token  bigint := floor(random() * 9007199254740992);
    its_number bigint;
BEGIN
    INSERT INTO greendot_visibility_heads AS h VALUES (its_tenant, TG_ARGV[0], 1, its_token)
    ON CONFLICT (tenant, kind) DO UPDATE SET number = h.number + 1, token = excluded.token
    RETURNING h.number INTO its_number;
    INSERT INTO greendot_visibility_changes VALUES (its_tenant, TG_ARGV[0], its_number, its_user, its_token);
    DELETE FROM greendot_visibility_changes
    WHERE tenant = its_tenant AND kind = TG_ARGV[0] AND number = its_number - 10000;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER greendot_privacy_changed AFTER INSERT OR UPDATE OR DELETE ON greendot_privacy
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION greendot_visibility_changed('privacy');
CREATE CONSTRAINT TRIGGER greendot_contacts_changed AFTER INSERT OR UPDATE OR DELETE ON greendot_contacts
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION greendot_visibility_changed('contacts');
CREATE CONSTRAINT TRIGGER greendot_members_changed AFTER INSERT OR DELETE ON greendot_members
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION greendot_visibility_changed('members');

CREATE INDEX greendot_privacy_hiding ON greendot_privacy (tenant, user_id)
    WHERE last_seen = 'hidden' OR hide_from <> '';
