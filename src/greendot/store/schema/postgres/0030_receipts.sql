ALTER TABLE greendot_rooms ADD COLUMN receipts boolean NOT NULL DEFAULT false;

-- What other users may know of read markers. `hidden_from`: the users from whom the reader hid when the receipt was
-- written, with spaces between them.
CREATE TABLE greendot_receipts (
    tenant      text COLLATE "C" NOT NULL,
    room        text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    hidden_from text NOT NULL,
    PRIMARY KEY (tenant, room, user_id)
);
CREATE INDEX greendot_receipts_counted ON greendot_receipts (room, tenant, seq) WHERE hidden_from = '';
CREATE INDEX greendot_receipts_hidden ON greendot_receipts (tenant) WHERE hidden_from <> '';
