-- provisional: the room was made for a channel that no operator has declared. It is open until the app creates it.
ALTER TABLE rooms ADD COLUMN provisional INTEGER NOT NULL DEFAULT 0;
