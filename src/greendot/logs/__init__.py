"""What a server logs. Every kind of line is one event with one name; all of them are in `logs.events`."""
