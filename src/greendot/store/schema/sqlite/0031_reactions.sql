-- Reactions of users to messages. `ref` is the number of the message, `seq` of the record that set the reaction.
CREATE TABLE reactions (
    tenant   TEXT NOT NULL,
    room     TEXT NOT NULL,
    ref      INTEGER NOT NULL,
    user     TEXT NOT NULL,
    reaction TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (tenant, room, ref, user, reaction)
) WITHOUT ROWID;
CREATE INDEX reactions_by_user ON reactions (tenant, user, room, ref, reaction);

-- Number of users with each reaction to a message. `first` is the number of the oldest record that counts: the order in
-- which clients show the reactions. The empty reaction is a mark. Its count is 0: the message has lost a reaction, so that
-- pages tell up to which record they count. Its count is -1: the message was deleted and takes no reactions.
CREATE TABLE reaction_counts (
    tenant   TEXT NOT NULL,
    room     TEXT NOT NULL,
    ref      INTEGER NOT NULL,
    reaction TEXT NOT NULL,
    count    INTEGER NOT NULL,
    first    INTEGER NOT NULL,
    PRIMARY KEY (tenant, room, ref, reaction)
) WITHOUT ROWID;

-- Triggers keep the counts, so that no statement can forget to.
CREATE TRIGGER reactions_inserted AFTER INSERT ON reactions BEGIN
    INSERT INTO reaction_counts VALUES (NEW.tenant, NEW.room, NEW.ref, NEW.reaction, 1, NEW.seq)
    ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER reactions_deleted AFTER DELETE ON reactions BEGIN
    UPDATE reaction_counts SET count = count - 1
    WHERE tenant = OLD.tenant AND room = OLD.room AND ref = OLD.ref AND reaction = OLD.reaction;
    INSERT OR IGNORE INTO reaction_counts SELECT tenant, room, ref, '', 0, 0 FROM reaction_counts
    WHERE tenant = OLD.tenant AND room = OLD.room AND ref = OLD.ref AND reaction = OLD.reaction AND count <= 0;
    DELETE FROM reaction_counts
    WHERE tenant = OLD.tenant AND room = OLD.room AND ref = OLD.ref AND reaction = OLD.reaction AND count <= 0;
END;

-- A message that is deleted, or whose author is erased, loses its reactions. The counts go first: then the trigger above
-- has nothing to change.
CREATE TRIGGER messages_deleted AFTER INSERT ON messages WHEN NEW.op = 'delete' BEGIN
    DELETE FROM reaction_counts WHERE tenant = NEW.tenant AND room = NEW.room AND ref = NEW.ref;
    DELETE FROM reactions WHERE tenant = NEW.tenant AND room = NEW.room AND ref = NEW.ref;
    INSERT INTO reaction_counts VALUES (NEW.tenant, NEW.room, NEW.ref, '', -1, 0);
END;
CREATE TRIGGER messages_erased AFTER UPDATE OF op ON messages WHEN NEW.op = 'erased' AND NEW.ref IS NULL BEGIN
    DELETE FROM reaction_counts WHERE tenant = NEW.tenant AND room = NEW.room AND ref = NEW.seq;
    DELETE FROM reactions WHERE tenant = NEW.tenant AND room = NEW.room AND ref = NEW.seq;
END;
