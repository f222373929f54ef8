CREATE TABLE privacy (
    tenant    TEXT NOT NULL,
    user      TEXT NOT NULL,
    last_seen TEXT NOT NULL,
    hide_from TEXT NOT NULL, -- users, with spaces between them
    rev       INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

CREATE TABLE contacts (
    tenant          TEXT NOT NULL,
    user            TEXT NOT NULL,
    other           TEXT NOT NULL,
    last_contact_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, other)
) WITHOUT ROWID;
CREATE INDEX contacts_by_other ON contacts (tenant, other);
