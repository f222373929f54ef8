ALTER TABLE rooms ADD COLUMN receipts INTEGER NOT NULL DEFAULT 0;

-- What other users may know of read markers. `hidden_from`: the users from whom the reader hid when the receipt was
-- written, with spaces between them.
CREATE TABLE receipts (
    tenant      TEXT NOT NULL,
    room        TEXT NOT NULL,
    user        TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    hidden_from TEXT NOT NULL,
    PRIMARY KEY (tenant, room, user)
) WITHOUT ROWID;
CREATE INDEX receipts_counted ON receipts (room, tenant, seq) WHERE hidden_from = '';
CREATE INDEX receipts_hidden ON receipts (tenant) WHERE hidden_from <> '';
