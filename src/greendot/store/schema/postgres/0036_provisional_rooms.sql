-- provisional: the room was made for a channel that no operator has declared. It is open until the app creates it.
ALTER TABLE greendot_rooms ADD COLUMN provisional boolean NOT NULL DEFAULT false;
