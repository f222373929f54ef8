// Data of the wire, with the names and meanings of docs/protocol.md. Times are milliseconds UTC, null if unknown.

export type State = "online" | "idle" | "busy" | "offline";
export type Status = "auto" | "busy" | "invisible";
export type MarkedAs = "seen" | "read" | "archived" | "acked";
export type InboxFilter = "all" | "unread" | "unseen" | "archived";

/** JSON object that the app has set for a user, such as avatar and colour. */
export type Info = Record<string, any>;

/** Name and info of a user. */
export interface Profile {
  name: string | null;
  /** Absent if there is none. */
  info?: Info;
}

/** Presence of one user, as this reader may see it. */
export interface Presence extends Profile {
  user: string;
  state: State;
  since: number | null;
  /** Null unless offline. */
  last_seen: number | null;
  /** Grows with every change; 0 if nothing is known. */
  version: number;
  status_text: string | null;
  /** `poll`: the server sends no change events of the user. The client polls about every 60 s while the page is visible. */
  mode: "live" | "poll";
  /** In snapshots only. */
  devices?: string[];
  /** On the user's own devices only. */
  status?: Status;
  /** On the user's own devices only: time at which the status ends. */
  until?: number | null;
  /** The state may be out of date: it is the last one that the server knew. */
  stale?: boolean;
  /** With mode `poll` only. */
  recently_active?: boolean;
}

/** Number of users with one reaction to a message. */
export interface Reaction {
  reaction: string;
  count: number;
  /** Whether this user has the reaction. */
  mine: boolean;
}

/** Message of a room. An edit (`op: "edit"`), a deletion or a reaction is a separate message, and `ref` is the number of its target. */
export interface RoomMessage<Body = unknown> {
  room: string;
  seq: number;
  id: string;
  /** Empty if the author was erased. */
  user: string;
  name: string | null;
  body: Body;
  at: number;
  ref: number | null;
  op: "edit" | "delete" | "react" | "unreact" | "erased" | null;
  /** Reactions to the message, in pages of the history only. `showMessages` counts later ones. */
  reactions?: readonly Reaction[];
  /** Number of the record up to which `reactions` are counted. */
  reacted?: number;
  /** Key of `send`, only on messages of this client. */
  key?: string;
  /** Current info of the author. */
  info?: Info;
}

/** Notification of an event. */
export interface Notification<Body = unknown> {
  seq: number;
  id: string;
  kind: string;
  body: Body;
  created_at: number;
  /** Whether the notification needs an acknowledgement: see `inbox.ack`. */
  ack: boolean;
}

/** Notification in the inbox, with the times of its marks. */
export interface InboxEntry<Body = unknown> extends Notification<Body> {
  seen_at: number | null;
  read_at: number | null;
  archived_at: number | null;
  acked_at: number | null;
}

/** Signal of another client. */
export interface Signal<Body = unknown> {
  /** Null: an invisible user sent the signal. */
  from: string | null;
  name: string | null;
  kind: string;
  room?: string;
  body?: Body;
  key?: string;
}

/** Mark of inbox entries on any device: those of `ids`, or all up to `through`. */
export interface Marked {
  state: MarkedAs;
  ids?: string[];
  through?: number;
}

export interface Badge {
  unread: number;
  unseen: number;
}

export interface Typer extends Profile {
  user: string;
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

/** Times of typing events. Servers before 0.1.0 do not send them. */
export interface TypingTimes {
  /** Interval of repeated starts while the user types. */
  repeat_ms: number;
  /** Time for which a start is valid. */
  hold_ms: number;
  /** Minimum time between two starts. Earlier ones are dropped, also after a stop. */
  throttle_ms: number;
}

/** Data of the server about this session, sent after the hello. */
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

/** Entry of `client.rooms()`. */
export interface RoomEntry {
  room: string;
  head: number;
  unread: number;
  open: boolean;
}

/** State of a room at the join. Missed messages come as events. */
export interface Joined<Body = unknown> {
  room: string;
  head: number;
  unread: number;
  /** Number of users in the room, including this one. */
  present: number;
  /** The newest messages up to `head`, if the join has `history`; else empty. */
  messages: RoomMessage<Body>[];
}

/** Id and number of a stored message. */
export interface Written {
  id: string;
  seq: number;
}

/** Number of the last message that a user has read, in a room with read receipts. */
export interface Receipt {
  /** Absent in pages. */
  room?: string;
  user: string;
  seq: number;
}

/** Number of users who have read the message `seq`. */
export interface ReaderCount {
  /** Absent in answers. */
  room?: string;
  seq: number;
  count: number;
}

export interface ReceiptPage {
  receipts: Receipt[];
  /** Number of all receipts, not only those in this page. */
  count: number;
  /** Value of `after` for the next page, or null. */
  next: string | null;
}

export interface PresentPage {
  users: string[];
  count: number;
  /** Names and info by user id, of users who have any. Servers of the version before do not send them. */
  profiles?: Record<string, Profile>;
}

export interface InboxPage<Body = unknown> extends Badge {
  notifications: InboxEntry<Body>[];
  head: number;
}

export interface Privacy {
  last_seen: "shown" | "hidden";
  hide_from: string[];
}

/** Event as received, for `client.on("event")`. */
export interface RawEvent {
  type: string;
  v: number;
  ts: number;
  data: Record<string, unknown>;
  trace?: string;
}
