-- Reactions of users to messages. `ref` is the number of the message, `seq` of the record that set the reaction.
CREATE TABLE greendot_reactions (
    tenant   text COLLATE "C" NOT NULL,
    room     text COLLATE "C" NOT NULL,
    ref      bigint NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    reaction text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,
    PRIMARY KEY (tenant, room, ref, user_id, reaction)
);
CREATE INDEX greendot_reactions_by_user ON greendot_reactions (user_id, tenant, room, ref, reaction);

-- Number of users with each reaction to a message. `first` is the number of the oldest record that counts: the order in
-- which clients show the reactions. The empty reaction is a mark. Its count is 0: the message has lost a reaction, so that
-- pages tell up to which record they count. Its count is -1: the message was deleted and takes no reactions.
CREATE TABLE greendot_reaction_counts (
    tenant   text COLLATE "C" NOT NULL,
    room     text COLLATE "C" NOT NULL,
    ref      bigint NOT NULL,
    reaction text COLLATE "C" NOT NULL,
    count    bigint NOT NULL,
    first    bigint NOT NULL,
    PRIMARY KEY (tenant, room, ref, reaction)
) WITH (fillfactor = 70);

-- Triggers keep the counts, so that no statement can forget to. Every transaction that writes reactions has locked the
-- rows of their rooms first.
CREATE FUNCTION greendot_reactions_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO greendot_reaction_counts AS c
    SELECT tenant, room, ref, reaction, count(*), min(seq) FROM new_rows GROUP BY tenant, room, ref, reaction
    ON CONFLICT (tenant, room, ref, reaction) DO UPDATE SET count = c.count + excluded.count;
    RETURN NULL;
END
$$;
CREATE TRIGGER greendot_reactions_inserted AFTER INSERT ON greendot_reactions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION greendot_reactions_inserted();

CREATE FUNCTION greendot_reactions_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE greendot_reaction_counts c SET count = c.count - gone.count
    FROM (SELECT tenant, room, ref, reaction, count(*) AS count FROM old_rows GROUP BY 1, 2, 3, 4) gone
    WHERE c.tenant = gone.tenant AND c.room = gone.room AND c.ref = gone.ref AND c.reaction = gone.reaction;
    WITH none_left AS (
        DELETE FROM greendot_reaction_counts c USING old_rows gone
        WHERE c.tenant = gone.tenant AND c.room = gone.room AND c.ref = gone.ref AND c.reaction = gone.reaction
          AND c.count <= 0
        RETURNING c.tenant, c.room, c.ref
    )
    INSERT INTO greendot_reaction_counts SELECT DISTINCT tenant, room, ref, '', 0, 0 FROM none_left
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER greendot_reactions_deleted AFTER DELETE ON greendot_reactions
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION greendot_reactions_deleted();

-- A message that is deleted, also by a node of the version before, or whose author is erased, loses its reactions. The
-- counts go first: then the trigger above has nothing to change.
CREATE FUNCTION greendot_message_gone() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    gone bigint := CASE TG_OP WHEN 'INSERT' THEN NEW.ref ELSE NEW.seq END;
BEGIN
    DELETE FROM greendot_reaction_counts WHERE tenant = NEW.tenant AND room = NEW.room AND ref = gone;
    DELETE FROM greendot_reactions WHERE tenant = NEW.tenant AND room = NEW.room AND ref = gone;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO greendot_reaction_counts VALUES (NEW.tenant, NEW.room, gone, '', -1, 0);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER greendot_messages_deleted AFTER INSERT ON greendot_messages
    FOR EACH ROW WHEN (NEW.op = 'delete') EXECUTE FUNCTION greendot_message_gone();
CREATE TRIGGER greendot_messages_erased AFTER UPDATE OF op ON greendot_messages
    FOR EACH ROW WHEN (NEW.op = 'erased' AND NEW.ref IS NULL) EXECUTE FUNCTION greendot_message_gone();
