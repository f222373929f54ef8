// Times and limits of a connection. This module imports nothing: bundlers then inline the numbers where they are used.

// One socket
export const WELCOME_MS = 10_000; // from opening a socket to the welcome
export const PATIENCE_MS = 10_000; // the client probes the server after this time without an answer
export const PROBE_MS = 5_000; // for the answer to a probe
export const SILENT_BEATS = 2.5; // heartbeats without any frame after which the connection is dead
export const CLOSE_MS = 1_000; // from an error of an open socket to the close event that gives the code
export const FAREWELL_MS = 2_000; // for the server to close after `bye`
export const OPEN = 1; // WebSocket.OPEN
export const LOST = 1006; // close code of a socket that ended without one

// One connection after another
export const LONGEST_HINT_MS = 300_000; // upper bound of the server's delay: a wrong value must not keep a client away for a day
export const LONGEST_MS = 2_000_000_000; // of a timer: setTimeout fires at once after a delay of 2³¹ ms
export const STEADY_MS = 5_000; // a connection that lasted longer resets the count of failures
export const CALM_MS = 1_000; // minimum time between attempts when the network or the page changes often
export const RETRY_MS = 1_000; // before a command is sent again, if the server gave no time
export const MOST_FAILURES = 5; // attempts of one command that fails with `internal`; the command may be the cause
export const PREPARED_MS = 30_000; // for getToken and the storage
export const LATE_MS = 90_000; // time in which the server may still execute a `hello` of a lost connection
export const EXPIRED = 4005; // close codes
export const BAD_TOKEN = 4500;
export const REPLACED = 4505;

// Tokens
export const ENDS_SOON_MS = 5_000; // a token that expires sooner is not used to connect
export const LEAST_LEAD_MS = 1_000; // a token is replaced between these times before it expires
export const MOST_LEAD_MS = 60_000;

// Cursors
export const SAVE_MS = 250; // delay before saving, because many records may come at once
export const MOST_ROOMS = 200; // cursors kept, of the rooms used last

// Frames
export const BATCH = 400; // users per command: this number with the longest ids fits into a frame of 64 KiB
export const MOST_RESUMED = 400; // rooms that fit into a hello; other rooms recover by joining again
export const PAGE = 300; // records in a page of the history or the inbox: the server's maximum
export const MOST_FETCHED = 1_000; // beyond this number a gap is reported, because fetching so many records is rarely useful
export const MOST_EARLY = 1_000; // records held while earlier ones are fetched; records beyond this number are fetched too
export const MOST_SENT = 500; // keys of own messages that are remembered
export const POLL_MS = 60_000; // about the time between reads of users in mode `poll`
