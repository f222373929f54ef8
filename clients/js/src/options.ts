// Options and events of the client.

import type { Clock } from "./clock.js";
import type { GreendotError } from "./errors.js";
import type { Reason } from "./reasons.js";
import type {
  Badge,
  Joined,
  Marked,
  Notification,
  Presence,
  Profile,
  RawEvent,
  ReaderCount,
  Receipt,
  RoomMessage,
  Signal,
  Typer,
  Welcome,
} from "./wire.js";

/** Why a token is requested: there is none yet, it expires soon, it has expired, or the server refused it. */
export type TokenWanted = "first" | "refresh" | "expired" | "refused";

export interface GreendotOptions {
  /** URL with `ws://`, `wss://`, `http://` or `https://`; in a page also a path. The default path is `/v1/connect`. */
  url: string;
  /**
   * Return a token for the signed-in user, from your own backend. The client calls it at first use, before a token
   * expires, and when the server refused one. On null (no user is signed in) the client closes. If it throws, the client
   * retries later.
   */
  getToken: (why: TokenWanted) => string | null | Promise<string | null>;
  /** Name that distinguishes the devices of a user. By default a generated name, kept in `storage`. */
  device?: string;
  /** Shown to operators. */
  client?: { name: string; version: string };
  /** Storage of cursors, by default in memory. With `localStore()` a reloaded page continues at its cursors. */
  storage?: Store;
  /** Whether to report activity of the user (pointer, keys, touch). In pages the default is true. */
  activity?: boolean;
  /** WebSocket class for environments without a global one (Node 20: `import WebSocket from "ws"`). */
  webSocket?: WebSocketMaker;
  /** Whether to use an event stream (SSE and POST) where WebSockets do not pass. The default is true. */
  fallback?: boolean;
  /** Limits of commands that wait, by default 200 commands and 1 MiB. Further commands fail with `queue_full`. */
  queue?: { count?: number; bytes?: number };
  /** Delay between attempts: random from 0 to `baseMs` × 2ⁿ, at most `capMs`. The defaults are 500 and 30,000. */
  backoff?: { baseMs?: number; capMs?: number };
  /** For tests. */
  clock?: Clock;
  /** For tests: a number in [0, 1). */
  random?: () => number;
  /** For tests: the source of network, visibility and activity, by default the page. `null`: none. */
  page?: Page | null;
}

/** Options of a signal. */
export interface SignalOptions {
  /** Of signals with the same key, kind and sender only the latest counts. */
  key?: string;
  /** Whether to wait for the answer of the server. */
  reply?: boolean;
}

/** Storage of a few short strings, sync or async. Its errors are not fatal and are emitted as `error`. */
export interface Store {
  get(key: string): string | null | Promise<string | null>;
  set(key: string, value: string): void | Promise<void>;
}

/** The part of a WebSocket that the client uses. */
export interface Socket {
  readonly readyState: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketMaker = new (url: string) => Socket;

/** The page around the client. */
export interface Page {
  /** False if the device is known to have no network. */
  isOnline(): boolean;
  isVisible(): boolean;
  /** Call `call` when network or visibility may have changed, when the user is active, or when the page is left. */
  on(sign: "network" | "visibility" | "activity" | "leave", call: () => void): Undo;
}

/** Function that undoes the call that returned it. Further calls do nothing. */
export type Undo = () => void;

/**
 * State of a client:
 *
 * - `idle`: not started. `connect()` starts it
 * - `connecting`: the client is connecting to the server
 * - `online`: the server has sent its welcome
 * - `waiting`: for the next attempt, in `reason.retryInMs`. `connect()` makes the attempt now
 * - `offline`: this device has no network. The client continues when there is one
 * - `closed`: by `close()`, or for good by the server; see `reason`. `connect()` starts again
 */
export type ConnectionState = "idle" | "connecting" | "online" | "waiting" | "offline" | "closed";

/** State of the connection to the server. The same object until something changes. */
export interface Connection {
  readonly state: ConnectionState;
  /** Reason why the client is not online. null in the states `idle`, `connecting` and `online`. */
  readonly reason: Reason | null;
  /** Number of failed attempts and lost connections in a row. A connection that lasts longer than 5 s ends the row. */
  readonly failures: number;
}

/**
 * Users who type in a room. In rooms with many users (setting `typing.large_room`), `typers` is empty, and only `count` is
 * known.
 */
export interface Typing {
  room: string;
  typers: readonly Typer[];
  count: number;
}

/** User in a room, with name and info. */
export interface UserProfile extends Profile {
  room: string;
  user: string;
}

/** Records of a room or the inbox that are not delivered: fetch those between `after` and `head`. */
export interface Gap {
  after: number;
  /** Below `after` if the server lost records. New records are numbered from here. */
  head: number;
}

/** `client.on(…)` */
export interface ClientEvents {
  state: Connection;
  welcome: Welcome;
  presence: Presence;
  typing: Typing;
  message: RoomMessage<any>;
  notification: Notification<any>;
  badge: Badge;
  signal: Signal<any>;
  /** Failure that no promise reports: a signal was refused, a token could not be fetched, a listener threw. */
  error: GreendotError;
  /** The server had an event of this type that this client cannot read: fetch the data again. */
  refresh: { of: string };
  /** Every event of the server as received, before the client processes it. */
  event: RawEvent;
}

/** `room.on(…)` */
export interface RoomEvents<Body = unknown, SignalBody = unknown> {
  /** Every message once and in order, across reconnects. */
  message: RoomMessage<Body>;
  typing: Typing;
  /** A user entered. Rooms with many users (setting `typing.large_room`) emit only `count`. */
  entered: UserProfile;
  /** Name or info of a user in the room has changed. */
  profile: UserProfile;
  left: { room: string; user: string };
  /** Number of users in the room. */
  count: number;
  /** Number of unread messages, over all devices. */
  unread: number;
  /**
   * A user has read up to message `seq`, in a room with read receipts. Rooms with many users or members (setting
   * `rooms.receipts_members`) emit `receipt_count`.
   */
  receipt: Receipt;
  /** Number of users who have read message `seq`, in a room with read receipts and many users or members. */
  receipt_count: ReaderCount;
  /** The client joined the room, for the first time or again. */
  joined: Joined<Body>;
  /** The user is no longer in this room. The value is the reason as a text. If the server refused the join: the code of the error. */
  removed: string;
  /** The app has archived the room, so that it can only be read, or has ended this. */
  archived: boolean;
  /**
   * The app has muted the user until this time, in milliseconds UTC (Infinity: no end). null: the mute has ended, or is not
   * known after a leave, a removal or a close.
   */
  muted: number | null;
  /** Seconds between two messages of one user; 0: slow mode has ended. */
  slow_mode: number;
  signal: Signal<SignalBody>;
  /** Too many messages were missed, or the server lost some: discard the shown messages and fetch with `history`. */
  resync: Gap;
}

/** `client.inbox.on(…)` */
export interface InboxEvents {
  created: Notification<any>;
  updated: Marked;
  badge: Badge;
  resync: Gap;
}
