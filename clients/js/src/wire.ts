// What the server says, as it says it: names and meanings are those of docs/protocol.md. Times are milliseconds UTC,
// null where unknown.

export type State = "online" | "idle" | "busy" | "offline";
export type Status = "auto" | "busy" | "invisible";
export type MarkedAs = "seen" | "read" | "archived" | "acked";
export type InboxFilter = "all" | "unread" | "unseen" | "archived";

/** One user as this reader sees them. */
export interface Presence {
  user: string;
  name: string | null;
  state: State;
  since: number | null;
  /** Null unless offline. */
  last_seen: number | null;
  /** Grows with every change; 0 says that nothing is known. */
  version: number;
  status_text: string | null;
  /** `poll`: so many watch that changes are not told. The client then asks every 30 s while the page is looked at. */
  mode: "live" | "poll";
  /** In snapshots only. */
  devices?: string[];
  /** On the user's own devices only. */
  status?: Status;
  /** On the user's own devices only: when the status ends. */
  until?: number | null;
  /** The server cannot follow the user at the moment; this is what it knew last. */
  stale?: boolean;
  /** With mode `poll` only. */
  recently_active?: boolean;
}

/** A message of a room. An edit (`op: "edit"`) or a deletion is a message of its own, and `ref` the one it is about. */
export interface RoomMessage<Body = unknown> {
  room: string;
  seq: number;
  id: string;
  /** Empty where the author was erased. */
  user: string;
  name: string | null;
  body: Body;
  at: number;
  ref: number | null;
  op: "edit" | "delete" | "erased" | null;
  /** Only on a message this client has sent and that comes back: the key of `send`. */
  key?: string;
}

/** A notification as it arrives. */
export interface Notification<Body = unknown> {
  seq: number;
  id: string;
  kind: string;
  body: Body;
  created_at: number;
  /** It comes again until `inbox.ack` is called for it. */
  ack: boolean;
}

/** A notification as it stands in the inbox. */
export interface InboxEntry<Body = unknown> extends Notification<Body> {
  seen_at: number | null;
  read_at: number | null;
  archived_at: number | null;
  acked_at: number | null;
}

/** Something fleeting that another client said. */
export interface Signal<Body = unknown> {
  from: string;
  name: string | null;
  kind: string;
  room?: string;
  body?: Body;
  key?: string;
}

/** Entries of the inbox came to be in a state, on whichever device: those of `ids`, or all up to `through`. */
export interface Marked {
  state: MarkedAs;
  ids?: string[];
  through?: number;
}

export interface Badge {
  unread: number;
  unseen: number;
}

export interface Typer {
  user: string;
  name: string | null;
}

export interface Limits {
  frame_bytes: number;
  commands_per_s: number;
  watches: number;
  rooms: number;
  [name: string]: number;
}

export interface RoomState {
  head: number;
  recovered: boolean;
  truncated: boolean;
}

/** What the server said about this session when it let us in. */
/** How typing is announced. Servers before 0.1.0 do not send it. */
export interface TypingTimes {
  /** A start is repeated so often while the person goes on. */
  repeat_ms: number;
  /** A start is held so long. */
  hold_ms: number;
  /** A start that follows another one sooner is dropped, also after a stop. */
  throttle_ms: number;
}

export interface Welcome {
  session: string;
  user: string;
  tenant: string;
  node: string;
  resumed: boolean;
  heartbeat_s: number;
  server_time: number;
  unread: number;
  limits: Limits;
  rooms: Record<string, RoomState>;
  typing?: TypingTimes;
}

/** One room of `client.rooms()`. */
export interface RoomEntry {
  room: string;
  head: number;
  unread: number;
  open: boolean;
}

/** Where a room stands when it is joined. Messages that were missed come as events, not here. */
export interface Joined {
  room: string;
  head: number;
  unread: number;
  /** How many are in the room, ourselves included. */
  present: number;
}

/** Where a message was written. */
export interface Written {
  id: string;
  seq: number;
}

export interface PresentPage {
  users: string[];
  count: number;
}

export interface InboxPage<Body = unknown> extends Badge {
  notifications: InboxEntry<Body>[];
  head: number;
}

export interface Privacy {
  last_seen: "shown" | "hidden";
  hide_from: string[];
}

/** An event as it came, for `client.on("event")`. */
export interface RawEvent {
  type: string;
  v: number;
  ts: number;
  data: Record<string, unknown>;
  trace?: string;
}
