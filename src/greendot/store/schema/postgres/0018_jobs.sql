CREATE TABLE greendot_jobs (
    name     text COLLATE "C" PRIMARY KEY,
    schedule text NOT NULL,
    next_at  bigint NOT NULL,
    fence    bigint NOT NULL DEFAULT 0,
    holder   text,
    until    bigint NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    ran_at   bigint,
    cursor   text
);

CREATE TABLE greendot_job_runs (
    name       text COLLATE "C" NOT NULL,
    fence      bigint NOT NULL,
    holder     text NOT NULL,
    started_at bigint NOT NULL,
    ended_at   bigint,
    outcome    text NOT NULL DEFAULT 'running',
    done       bigint NOT NULL DEFAULT 0,
    note       text NOT NULL DEFAULT '',
    PRIMARY KEY (name, fence)
);

-- When somebody was last reminded of what is unread.
CREATE TABLE greendot_reminders (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);
