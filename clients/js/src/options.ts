// What a client is made of, and what it tells of.

import type { Clock } from "./clock.js";
import type { GreendotError } from "./errors.js";
import type { Reason } from "./reasons.js";
import type {
  Badge,
  Joined,
  Marked,
  Notification,
  Presence,
  RawEvent,
  RoomMessage,
  Signal,
  Typer,
  Welcome,
} from "./wire.js";

/** Why a token is asked for: the first one, one that ends soon, one that has ended, one the server did not take. */
export type TokenWanted = "first" | "refresh" | "expired" | "refused";

export interface GreendotOptions {
  /** `ws://` or `wss://`, or `http(s)://` of the same server; in a page also a path. Without a path, `/v1/connect`. */
  url: string;
  /**
   * A token for the user who is signed in, from your own backend. Asked for at first use, before one ends, and when
   * the server did not take one; kept in between. Null says that nobody is signed in: the client closes. If it throws,
   * the client tries again later.
   */
  getToken: (why: TokenWanted) => string | null | Promise<string | null>;
  /** Tells a user's devices apart. Without it a name is made up and kept in `storage`. */
  device?: string;
  /** Shown to operators. */
  client?: { name: string; version: string };
  /** Where cursors are kept. In memory unless given; `localStore()` for a page that goes on where it was. */
  storage?: Store;
  /** Tell the server when somebody is at the page (pointer, keys, touch). On in pages unless false. */
  activity?: boolean;
  /** The WebSocket to use where there is no global one (Node 20: `import WebSocket from "ws"`). */
  webSocket?: WebSocketMaker;
  /** What may wait to be sent: 200 commands and 1 MiB unless given. Beyond, `send` is refused with `queue_full`. */
  queue?: { count?: number; bytes?: number };
  /** Waits between attempts: anywhere between nothing and `baseMs` × 2ⁿ, at most `capMs`. 500 and 30,000 unless given. */
  backoff?: { baseMs?: number; capMs?: number };
  /** For tests. */
  clock?: Clock;
  /** For tests: a number in [0, 1). */
  random?: () => number;
  /** For tests: what tells of network, visibility and activity; `null` for nothing. The page unless given. */
  page?: Page | null;
}

/** Keeps a few short strings. May answer at once or later; what it throws is told as `error` and is not fatal. */
export interface Store {
  get(key: string): string | null | Promise<string | null>;
  set(key: string, value: string): void | Promise<void>;
}

/** As much of a WebSocket as is used. */
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

/** What is known of the page around the client. */
export interface Page {
  /** False where the network is known to be gone. */
  isOnline(): boolean;
  isVisible(): boolean;
  /** Network or visibility may have changed; somebody is there; the page goes away, perhaps for good. */
  on(sign: "network" | "visibility" | "activity" | "leave", call: () => void): Undo;
}

/** Ends what the function that returned it began. Called again it does nothing. */
export type Undo = () => void;

/**
 * - `idle`: not begun, `connect()` does
 * - `connecting`: the server is being asked
 * - `online`: welcome
 * - `waiting`: for the next attempt, in `reason.retryInMs`; `connect()` makes it now
 * - `offline`: this device has no network; it goes on by itself when there is one
 * - `closed`: by `close()`, or by the server for good; `reason` says which. `connect()` begins again
 */
export type ConnectionState = "idle" | "connecting" | "online" | "waiting" | "offline" | "closed";

/** How it stands with the server. The same object until something changes. */
export interface Connection {
  readonly state: ConnectionState;
  /** Why it is not online; null where there is nothing to say. */
  readonly reason: Reason | null;
  /** Attempts that failed since it was last online. */
  readonly failures: number;
}

/** Who types in a room. In large rooms `typers` is empty and only `count` is known. */
export interface Typing {
  room: string;
  typers: readonly Typer[];
  count: number;
}

/** More was missed of a room or the inbox than is told: what lies between `after` and `head` is to be fetched. */
export interface Gap {
  after: number;
  /** Below `after` if the server has lost records, and numbers again from here. */
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
  /** What nobody waited for went wrong: a signal was refused, a token could not be had, a listener threw. */
  error: GreendotError;
  /** The server had something of this type to say that this client cannot read: fetch it anew. */
  refresh: { of: string };
  /** Every event of the server as it came, before it is looked at. */
  event: RawEvent;
}

/** `room.on(…)` */
export interface RoomEvents<Body = unknown, SignalBody = unknown> {
  /** Each once and in order, whatever happens to connections. */
  message: RoomMessage<Body>;
  typing: Typing;
  /** Somebody came. In large rooms only `count` is told. */
  entered: { user: string };
  left: { user: string };
  /** How many are in the room. */
  count: number;
  /** How many messages are unread, on whichever device they were read. */
  unread: number;
  /** The server let us in, at first or again. */
  joined: Joined;
  /** We are no longer in this room: why, in a word. */
  removed: string | null;
  signal: Signal<SignalBody>;
  /** Too much was missed: forget what is shown and fetch with `history`. */
  resync: Gap;
}

/** `client.inbox.on(…)` */
export interface InboxEvents {
  created: Notification<any>;
  updated: Marked;
  badge: Badge;
  resync: Gap;
}
