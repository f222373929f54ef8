CREATE TABLE greendot_privacy (
    tenant    text COLLATE "C" NOT NULL,
    user_id   text COLLATE "C" NOT NULL,
    last_seen text NOT NULL,
    hide_from text NOT NULL, -- users, with spaces between them
    rev       bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);

CREATE TABLE greendot_contacts (
    tenant          text COLLATE "C" NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    other           text COLLATE "C" NOT NULL,
    last_contact_at bigint NOT NULL,
    PRIMARY KEY (tenant, user_id, other)
);
CREATE INDEX greendot_contacts_by_other ON greendot_contacts (other, tenant);
