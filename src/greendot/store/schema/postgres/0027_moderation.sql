ALTER TABLE greendot_rooms ADD COLUMN archived boolean NOT NULL DEFAULT false;
-- Grows whenever the content of a message is erased, so that nodes read again what they have in memory.
ALTER TABLE greendot_rooms ADD COLUMN erasures bigint NOT NULL DEFAULT 0;
-- Random number of each new room: a room that was deleted and created again is another room.
ALTER TABLE greendot_rooms ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE greendot_rooms ALTER COLUMN epoch SET DEFAULT floor(random() * 9007199254740992)::bigint;

-- Changes of a message are found by its number.
CREATE INDEX greendot_messages_by_ref ON greendot_messages (tenant, room, ref, seq) WHERE ref IS NOT NULL;

-- Rooms that were deleted, until a job has removed all their rows. The room itself is removed at once.
CREATE TABLE greendot_room_deletions (
    tenant     text COLLATE "C" NOT NULL,
    room       text COLLATE "C" NOT NULL,
    deleted_at bigint NOT NULL,
    PRIMARY KEY (tenant, room)
);

-- No room is created under the name of a room whose rows are still being removed, also by nodes of the version before.
-- The trigger runs after the insertion, which waits for a deletion under way. So it always sees this deletion.
CREATE FUNCTION greendot_room_created() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM greendot_room_deletions WHERE tenant = NEW.tenant AND room = NEW.room) THEN
        RAISE EXCEPTION 'the room is being deleted' USING ERRCODE = 'GD001';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER greendot_room_created AFTER INSERT ON greendot_rooms
    FOR EACH ROW EXECUTE FUNCTION greendot_room_created();

-- Who changed what. The entries of a tenant are numbered without gaps.
CREATE TABLE greendot_audit (
    tenant  text COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    at      bigint NOT NULL,
    actor   text COLLATE "C" NOT NULL,
    action  text COLLATE "C" NOT NULL,
    room    text COLLATE "C",
    user_id text COLLATE "C",
    ref     bigint,
    reason  text,
    until   bigint,
    PRIMARY KEY (tenant, number)
);
CREATE INDEX greendot_audit_by_room ON greendot_audit (tenant, room, number) WHERE room IS NOT NULL;
CREATE INDEX greendot_audit_by_user ON greendot_audit (tenant, user_id, number) WHERE user_id IS NOT NULL;
CREATE INDEX greendot_audit_by_action ON greendot_audit (tenant, action, number);
CREATE INDEX greendot_audit_by_time ON greendot_audit (at);

CREATE TABLE greendot_audit_heads (
    tenant text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL
);
