-- Ids are compared byte by byte, as SQLite does: pages by name are the same in both stores, whatever the locale.
--
-- No two indexes of a table begin with the same columns. The planner knows how long a room or an inbox is on average; for
-- one that is a thousand times longer it would take "all of this room, then filter" for as good as the exact index.
CREATE TABLE greendot_rooms (
    tenant      text COLLATE "C" NOT NULL,
    room        text COLLATE "C" NOT NULL,
    open        boolean NOT NULL,
    head        bigint NOT NULL DEFAULT 0,
    members_rev bigint NOT NULL DEFAULT 0,
    bus         text NOT NULL DEFAULT 'full',
    PRIMARY KEY (tenant, room)
) WITH (fillfactor = 50); -- every message updates its head: there is room for that on the same page

CREATE INDEX greendot_rooms_open ON greendot_rooms (tenant, room) WHERE open;

CREATE TABLE greendot_members (
    tenant  text COLLATE "C" NOT NULL,
    room    text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    role    text NOT NULL,
    PRIMARY KEY (tenant, room, user_id)
);
CREATE INDEX greendot_members_by_user ON greendot_members (user_id, tenant, room);

CREATE TABLE greendot_markers (
    tenant  text COLLATE "C" NOT NULL,
    room    text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (tenant, room, user_id)
) WITH (fillfactor = 70);

CREATE TABLE greendot_messages (
    tenant  text COLLATE "C" NOT NULL,
    room    text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    id      text NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    name    text,
    body    bytea NOT NULL,
    key     text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    ref     bigint,
    op      text,
    PRIMARY KEY (tenant, room, seq)
);
CREATE UNIQUE INDEX greendot_messages_by_key ON greendot_messages (key, user_id, room, tenant);

CREATE TABLE greendot_inboxes (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    head    bigint NOT NULL DEFAULT 0,
    unread  bigint NOT NULL DEFAULT 0,
    unseen  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, user_id)
) WITH (fillfactor = 50);

-- The number leads the primary key, so that no page can be read by it: the planner would walk past a million archived
-- ones to find the few that are not. Each filter has an index of its own.
CREATE TABLE greendot_notifications (
    tenant      text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    id          text COLLATE "C" NOT NULL,
    kind        text NOT NULL,
    body        bytea NOT NULL,
    key         text COLLATE "C" NOT NULL,
    created_at  bigint NOT NULL,
    expires_at  bigint,
    live_at     bigint,
    push_at     bigint,
    seen_at     bigint,
    read_at     bigint,
    archived_at bigint,
    acked_at    bigint,
    PRIMARY KEY (seq, tenant, user_id)
);
CREATE UNIQUE INDEX greendot_notifications_by_key ON greendot_notifications (key, tenant, user_id);
CREATE INDEX greendot_notifications_all ON greendot_notifications (tenant, user_id, seq) WHERE archived_at IS NULL;
CREATE INDEX greendot_notifications_archived ON greendot_notifications (tenant, user_id, seq)
    WHERE archived_at IS NOT NULL;
CREATE INDEX greendot_notifications_unread ON greendot_notifications (tenant, user_id, seq) WHERE read_at IS NULL;
CREATE INDEX greendot_notifications_unseen ON greendot_notifications (tenant, user_id, seq) WHERE seen_at IS NULL;
CREATE INDEX greendot_notifications_unacked ON greendot_notifications (tenant, user_id, seq) WHERE acked_at IS NULL;
CREATE INDEX greendot_notifications_by_age ON greendot_notifications (created_at);
CREATE INDEX greendot_notifications_by_expiry ON greendot_notifications (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE greendot_status (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    status  text NOT NULL,
    until   bigint,
    text    text,
    rev     bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);
