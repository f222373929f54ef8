CREATE TABLE greendot_push_devices (
    tenant     text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    device     text COLLATE "C" NOT NULL,
    provider   text NOT NULL,
    token      text COLLATE "C" NOT NULL,
    token_hash text COLLATE "C" NOT NULL, -- a token may be longer than what can be indexed
    created_at bigint NOT NULL,
    used_at    bigint NOT NULL,
    PRIMARY KEY (tenant, user_id, device)
);
CREATE UNIQUE INDEX greendot_push_devices_by_token ON greendot_push_devices (tenant, provider, token_hash);
CREATE INDEX greendot_push_devices_by_use ON greendot_push_devices (used_at);

CREATE TABLE greendot_push_choices (
    tenant       text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    zone         text NOT NULL,
    quiet_begins integer NOT NULL,
    quiet_ends   integer NOT NULL,
    PRIMARY KEY (tenant, user_id)
);

-- due_at NULL: it is over. While somebody holds it, due_at is when the lease ends.
CREATE TABLE greendot_pushes (
    id           bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant       text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    seq          bigint NOT NULL,
    notification text COLLATE "C" NOT NULL,
    importance   text NOT NULL,
    room         text,
    collapse     text,
    created_at   bigint NOT NULL,
    due_at       bigint,
    holder       text,
    attempts     integer NOT NULL DEFAULT 0,
    reason       text NOT NULL DEFAULT '',
    results      bytea NOT NULL DEFAULT '[]',
    sent_at      bigint,
    over_at      bigint,
    dead         boolean NOT NULL DEFAULT false
);
CREATE INDEX greendot_pushes_due ON greendot_pushes (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX greendot_pushes_of ON greendot_pushes (tenant, notification);
CREATE INDEX greendot_pushes_sent ON greendot_pushes (tenant, user_id, sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX greendot_pushes_over ON greendot_pushes (over_at) WHERE over_at IS NOT NULL;
CREATE INDEX greendot_pushes_dead ON greendot_pushes (tenant, id) WHERE dead;
