-- The tenant and the phase (0 new, 1 failed, 2 dead) lead the key: the first events of one are found without walking through
-- the backlog of another. There is no second index, because every message pays for it.
CREATE TABLE greendot_hook_events (
    tenant    text COLLATE "C" NOT NULL,
    phase     smallint NOT NULL DEFAULT 0,
    id        bigint GENERATED ALWAYS AS IDENTITY,
    type      text NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    seq       bigint,
    state     text,
    ids       text[],
    at        bigint NOT NULL,
    attempts  integer NOT NULL DEFAULT 0,
    first_at  bigint,
    next_at   bigint,
    failed_at bigint,
    reason    text,
    PRIMARY KEY (tenant, phase, id)
);

CREATE TABLE greendot_hooks (
    tenant     text COLLATE "C" PRIMARY KEY,
    holder     text NOT NULL DEFAULT '',
    until      bigint NOT NULL DEFAULT 0,
    stopped    text NOT NULL DEFAULT '',
    stopped_at bigint,
    reason     text
);
