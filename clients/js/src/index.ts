export type { Clock } from "./clock.js";
export { GreendotError, type ErrorCode } from "./errors.js";
export type * from "./options.js";
export type { Action, Reason } from "./reasons.js";
export type * from "./wire.js";

import type { Reason } from "./reasons.js";
import type {
  ClientEvents,
  Connection,
  ConnectionState,
  GreendotOptions,
  InboxEvents,
  RoomEvents,
  Store,
  Typing,
  Undo,
} from "./options.js";
import type {
  Badge,
  InboxFilter,
  InboxPage,
  Joined,
  Presence,
  PresentPage,
  Privacy,
  RoomEntry,
  RoomMessage,
  Status,
  Welcome,
  Written,
} from "./wire.js";

/** One user's connection to a Greendot server, that keeps itself up. */
export declare class Greendot {
  constructor(options: GreendotOptions);

  /** `client.connection.state` and `client.connection.reason`. */
  readonly state: ConnectionState;
  readonly reason: Reason | null;
  /** Both, as one object that is another one after each change: what `on("state")` tells. */
  readonly connection: Connection;
  /** What the server said last when it let us in; null before. */
  readonly welcome: Welcome | null;
  /** The user the token is for; null before the first welcome. */
  readonly user: string | null;

  readonly presence: People;
  readonly inbox: Inbox;
  readonly status: {
    /** The user's own status, on all devices. `until` ends it. How the user stands now. */
    set(wanted: { status: Status; until?: number | Date | null; text?: string | null }): Promise<Presence>;
  };
  readonly privacy: {
    /** What is left out stays as it is. What is hidden now. */
    set(wanted: Partial<Privacy>): Promise<Privacy>;
    get(): Promise<Privacy>;
  };

  /** Connect, and stay connected. While it waits for the next attempt: make that now. */
  connect(): void;
  /**
   * Leave: what waits to be sent is refused. The user may be offline at once; with `{ bye: false }` the server waits
   * some seconds for this device to return. `connect()` begins again, in the same rooms and watching the same people.
   */
  close(options?: { bye?: boolean }): void;

  /** Call `listener` with every such event; call what is returned to stop that. */
  on<Type extends keyof ClientEvents>(type: Type, listener: (event: ClientEvents[Type]) => void): Undo;

  /** The room of this name, always the same object. `Body` is the type of its messages. */
  room<Body = unknown, SignalBody = unknown>(name: string): Room<Body, SignalBody>;
  /** The rooms the user is a member of and the open ones, with how much is unread. */
  rooms(): Promise<RoomEntry[]>;

  /** Say something fleeting to all devices of a user. Whether it was said: without a connection it is dropped. */
  signal(user: string, kind: string, body?: unknown, options?: { key?: string }): boolean;
  /** Somebody is there. Called by itself in pages; throttled. */
  active(): void;
  /** The server's time, as far as is known. For `lastSeenText`. */
  now(): number;
  /** Any command of the protocol; its reply's data. For what has no method here. */
  request<Reply = Record<string, unknown>>(type: string, fields?: Record<string, unknown>): Promise<Reply>;
}

/** `client.presence`: how people stand. */
export declare class People {
  /**
   * Follow these people: `listener` is called with each one's entry as soon as it is known, then with every change.
   * Counted: a person is followed until every watch is undone. All watches of one turn are one command.
   */
  watch(users: string | Iterable<string>, listener?: (entry: Presence) => void): Undo;
  /** What is known of somebody who is watched: never older than what was told; another object after each change. */
  of(user: string): Presence | undefined;
  /** How these people stand now, in this order, watched or not. */
  get(users: string | Iterable<string>): Promise<Presence[]>;
}

/** `client.room(name)` */
export declare class Room<Body = unknown, SignalBody = unknown> {
  readonly name: string;
  /** Whether the server has let us in, on this connection. */
  readonly joined: boolean;
  /** The number of the newest message known; 0 before the room is joined. */
  readonly head: number;
  readonly unread: number;
  /** How many are in the room; null before it is joined. */
  readonly count: number | null;
  /** Who types: the same object until that changes. */
  readonly typers: Typing;

  on<Type extends keyof RoomEvents>(
    type: Type,
    listener: (event: RoomEvents<Body, SignalBody>[Type]) => void,
  ): Undo;

  /**
   * Be in this room, now and after every return; waits for a connection. Messages after number `after` are told first;
   * without it those after the cursor that was kept, else only what is new.
   * Counted: the room is left when each `join` was followed by a `leave`.
   */
  join(options?: { after?: number }): Promise<Joined>;
  leave(): void;

  /**
   * Write a message; resolves when the server has it. Without a connection it waits, in its order. It has a key, made
   * here unless given: however often it is sent, it is written once.
   */
  send(body: Body, options?: { key?: string }): Promise<Written>;
  /** Give the message with number `ref` another body. */
  edit(ref: number, body: Body, options?: { key?: string }): Promise<Written>;
  /** Take the message with number `ref` back. */
  delete(ref: number, options?: { key?: string }): Promise<Written>;

  /** Messages in ascending order, bounds excluded: the oldest after `after`, else the newest (before `before`). */
  history(options?: { before?: number; after?: number; limit?: number }): Promise<RoomMessage<Body>[]>;
  /** The person has read up to number `seq`, or all there is; how many are left. Waits for a connection. */
  read(seq?: number): Promise<number>;

  /** Call it at every keystroke, with false when the field is empty again: it says what is to be said, every 3 s. */
  typing(isTyping?: boolean): void;
  /** A page of who is in the room, by id. */
  present(options?: { after?: string; limit?: number }): Promise<PresentPage>;
  /** Say something fleeting, like where a cursor is. With `key` only the latest counts. Whether it was said. */
  signal(kind: string, body?: SignalBody, options?: { key?: string }): boolean;
}

/** Some entries by their ids, or all up to and including a number. */
export type Marks = string | string[] | { through: number };

/** `client.inbox`: what the user must not miss. Marks wait for a connection. */
export declare class Inbox {
  readonly unread: number;
  readonly unseen: number;
  on<Type extends keyof InboxEvents>(type: Type, listener: (event: InboxEvents[Type]) => void): Undo;
  /** A page in ascending order: the oldest after `after`, else the newest (before `before`). */
  list<Body = unknown>(options?: {
    after?: number;
    before?: number;
    limit?: number;
    filter?: InboxFilter;
  }): Promise<InboxPage<Body>>;
  seen(which: Marks): Promise<Badge>;
  read(which: Marks): Promise<Badge>;
  archive(which: Marks): Promise<Badge>;
  /** Acknowledge: a notification with `ack` comes again until this is said. */
  ack(which: Marks): Promise<Badge>;
}

/** The words of `typingText`. `{0}` and `{1}` are names, `{n}` a number; the keys of `some` are Intl.PluralRules'. */
export interface TypingWords {
  one: string;
  two: string;
  several: string;
  /** Where not all names are known. */
  some: Partial<Record<Intl.LDMLPluralRule, string>> & { other: string };
}

/**
 * "Alice is typing…", "Alice and Bob are typing…", "several people are typing…"; empty when nobody does. `count` where
 * it is more than the names, as in large rooms. `locale` chooses among the words this library has (English), and their
 * plurals; `words` replace them.
 */
export declare function typingText(
  names: readonly string[],
  count?: number,
  options?: { locale?: string; words?: TypingWords },
): string;

/** "just now", "5 minutes ago", in the words of `locale` (Intl.RelativeTimeFormat); empty where it is not known. */
export declare function lastSeenText(at: number | null, now: number, options?: { locale?: string; justNow?: string }): string;

/** After how many milliseconds `lastSeenText` says something else; null if never. */
export declare function lastSeenNext(at: number | null, now: number): number | null;

/** A message as it is to be shown. */
export interface ShownMessage<Body = unknown> extends RoomMessage<Body> {
  edited: boolean;
  /** Taken back, or its author erased: `body` is null. */
  deleted: boolean;
}

/**
 * `shown` with `records` taken in, in any order and any number of times: sorted, each once, edits and deletions applied.
 * The same array if nothing changed. `limit` keeps the newest only.
 */
export declare function showMessages<Body>(
  shown: readonly ShownMessage<Body>[],
  records: readonly RoomMessage<Body>[],
  limit?: number,
): readonly ShownMessage<Body>[];

/** Keeps cursors in localStorage (or what is given), under names that begin with `prefix`. */
export declare function localStore(prefix?: string, storage?: Pick<Storage, "getItem" | "setItem">): Store;
/** Keeps them as long as the page is there. */
export declare function memoryStore(): Store;
/** A key nobody else will choose, for `send`. */
export declare function newKey(): string;
