-- Users who may not send (`mute`) or not be there (`ban`): in a room, or with an empty room in the whole tenant.
CREATE TABLE greendot_restrictions (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    room    text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    until   bigint NOT NULL,
    at      bigint NOT NULL,
    actor   text COLLATE "C" NOT NULL,
    reason  text,
    PRIMARY KEY (tenant, user_id, room, kind)
);
CREATE INDEX greendot_restrictions_by_room ON greendot_restrictions (tenant, room, kind, user_id);
CREATE INDEX greendot_restrictions_by_end ON greendot_restrictions (until);

-- Seconds between two messages of one user; 0: no slow mode.
ALTER TABLE greendot_rooms ADD COLUMN slow_mode_s integer NOT NULL DEFAULT 0;
-- Time of the last message of each user in rooms with slow mode.
CREATE TABLE greendot_slow_sends (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    room    text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (tenant, user_id, room)
);
CREATE INDEX greendot_slow_sends_by_room ON greendot_slow_sends (tenant, room);
CREATE INDEX greendot_slow_sends_by_time ON greendot_slow_sends (at);
