// A room: its newest messages, outgoing messages, occupants and typers, and the actions on them.

import {
  type Greendot,
  GreendotError,
  newKey,
  type Profile,
  type Room,
  type RoomMessage,
  type ShownMessage,
  type Typing,
  type Undo,
  type Written,
} from "../index.js";
import { Presents } from "./presents.js";
import { stay } from "./roompart.js";
import { ignorable, Shared, sharedSource, shelfOf, type Source } from "./shared.js";
import { Transcript } from "./transcript.js";

/** Options of a room. If several components show the room, the options of the first component apply. */
export interface RoomOptions {
  /** Number of messages per fetch, including edits, deletions and reactions: by default 50, at most 300. */
  pageSize?: number;
  /** Number of newest messages to keep in `messages`: by default 1,000. `loadOlder` raises this number. */
  keep?: number;
  /**
   * Number of newest messages to fetch together with the join, at most 100. By default, the client joins first, and then
   * fetches a page of messages.
   */
  history?: number;
}

/** Message from `send` that the client has not received from the room yet. */
export interface Outgoing<Body = unknown> {
  /** Key of the message, from `send`. */
  key: string;
  body: Body;
  /** Error if `send` has failed, otherwise null. To send the message again, call `send(body, { key })`. */
  error: GreendotError | null;
}

/**
 * State of a room, from `roomSource`. Import this type from `@greendot/client/stores`: `@greendot/client` has another type
 * with the same name.
 */
export interface RoomState<Body = unknown> {
  /** Whether the client is in the room now: the server has accepted the join on the current connection. */
  joined: boolean;
  /**
   * If the server has refused the join: the code of the error, such as `not_a_member`. If the server has removed the user from
   * the room: a text with the reason, such as `room deleted`. Otherwise null.
   */
  removed: string | null;
  /** Messages. The newest is the last one. Edits, deletions and reactions are already applied to the messages. */
  messages: readonly ShownMessage<Body>[];
  /** Messages from `send` that the client has not received from the room yet. The oldest is the first one. */
  outgoing: readonly Outgoing<Body>[];
  /** Whether the server may have older messages. */
  hasOlder: boolean;
  /** Whether the client is fetching messages. */
  loading: boolean;
  /** Error of the last fetch of messages, or null. */
  error: GreendotError | null;
  /**
   * Users who type, and their number. If more than 100 clients on one node of the server are in the room (setting
   * `typing.large_room`), only the number is known.
   */
  typing: Typing;
  /** Ids of the users in the room. If more than 100 users are in the room, the list is empty, and only `count` is known. */
  present: readonly string[];
  /** Names and info of the users in `present`, by user id. The map is a new object after each change. */
  profiles: ReadonlyMap<string, Profile>;
  /** Number of users in the room. If the number is not known, the value is null. */
  count: number | null;
  /** Number of unread messages, including edits, deletions and reactions. */
  unread: number;
  /** Whether the app has archived the room. Users can read an archived room, but not change it. */
  archived: boolean;
  /**
   * End of the user's mute, in milliseconds UTC. If the mute has no end, the value is Infinity. If the user is not muted, the
   * value is null. It is also null before the first join, and after a removal or a close of the client.
   */
  mutedUntil: number | null;
  /** Shortest time between two messages of one user, in seconds. 0: no slow mode. */
  slowModeS: number;
}

/** Actions of a room, from `roomActions`. */
export interface RoomActions<Body = unknown, SignalBody = unknown> {
  /** The `Room` of the client. It has more methods, for example `edit`, `delete` and `signal`. */
  room: Room<Body, SignalBody>;
  /**
   * Send a message. The message is in `outgoing` at once. When the client receives the message from the room, the message
   * moves to `messages`. By default, each call generates a new `key`.
   */
  send(body: Body, options?: { key?: string }): Promise<Written>;
  /**
   * Add a reaction of the user to the message `seq`. `seq` is the number of the message. To remove the reaction, call
   * `react(seq, reaction, false)`. (With `Room.react`, the call is `react(seq, reaction, { on: false })`.)
   */
  react(seq: number, reaction: string, on?: boolean): Promise<Written>;
  /** Remove a message from `outgoing`, for example after the server has refused the message. */
  discard(key: string): void;
  /** Fetch a page of older messages. They are then at the start of `messages`. */
  loadOlder(): Promise<void>;
  /** Report that the user types. Call `setTyping()` at every keystroke, and `setTyping(false)` when the field is empty. */
  setTyping(isTyping?: boolean): void;
  /** Mark the messages up to `seq` as read; by default all messages. Returns the number of messages that are still unread. */
  markRead(seq?: number): Promise<number>;
  /** Join the room again, after the server has refused the join or has removed the user. */
  join(): void;
}

const EMPTY: RoomState<any> = Object.freeze({
  joined: false,
  removed: null,
  messages: Object.freeze([]),
  outgoing: Object.freeze([]),
  hasOlder: false,
  loading: false,
  error: null,
  typing: Object.freeze({ room: "", typers: Object.freeze([]), count: 0 }),
  present: Object.freeze([]),
  profiles: Object.freeze(new Map()),
  count: null,
  unread: 0,
  archived: false,
  mutedUntil: null,
  slowModeS: 0,
} as any);

class RoomStore<Body> extends Shared<RoomState<Body>> {
  #client: Greendot;
  #room: Room<Body>;
  #transcript: Transcript<Body>;
  #presents: Presents;
  #user: string | null;
  #leave: Undo = () => {};
  #history: number | undefined;
  #written = new Map<string, number>(); // key → number, of messages in `outgoing` that the server has stored

  constructor(client: Greendot, name: string, { pageSize = 50, keep = 1_000, history }: RoomOptions) {
    super(EMPTY);
    this.#history = history;
    this.#client = client;
    this.#room = client.room<Body>(name);
    this.#user = client.user;
    this.#transcript = new Transcript(this.#room, () => client.user, pageSize, keep, (part) => this.#put(part));
    this.#presents = new Presents(this.#room, (present, profiles) => this.#put({ present, profiles }));
  }

  protected override follow(): Undo[] {
    const room = this.#room;
    const listeners = [
      room.on("joined", ({ messages }) => this.#joined(messages)),
      room.on("removed", (why) => this.#removed(why)),
      room.on("message", (message) => this.#told(message)),
      room.on("resync", () => this.#transcript.reload()),
      room.on("typing", (typing) => this.#put({ typing })),
      room.on("unread", (unread) => this.#put({ unread })),
      room.on("archived", (archived) => this.#put({ archived })),
      room.on("muted", (mutedUntil) => this.#put({ mutedUntil })),
      room.on("slow_mode", (slowModeS) => this.#put({ slowModeS })),
      room.on("count", (count) => {
        this.#put({ count });
        this.#presents.counted();
      }),
      room.on("entered", (who) => this.#presents.moved(who, true)),
      room.on("left", (who) => this.#presents.moved(who, false)),
      room.on("profile", (who) => this.#presents.changed(who)),
      this.#client.on("state", () => this.#put({ joined: room.joined })),
      this.#client.on("welcome", ({ user }) => this.#welcomed(user)),
    ];
    const wasIn = room.joined;
    this.join();
    // With `history`, the client sends `room.join` again, and the reply has the messages.
    if (wasIn && this.#history === undefined) this.#joined();
    return [...listeners, () => this.#leave(), () => this.#transcript.end(), () => this.#presents.end()];
  }

  /** Join the room again, after a refusal or a removal. */
  join(): void {
    this.#leave();
    this.#put({ removed: null });
    this.#leave = stay(this.#room, this.#history);
  }

  loadOlder(): Promise<void> {
    return this.#transcript.loadOlder();
  }

  send(body: Body, key: string = newKey()): Promise<Written> {
    const others = this.value.outgoing.filter((one) => one.key !== key);
    this.#put({ outgoing: [...others, { key, body, error: null }] });
    const sending = this.#room.send(body, { key });
    sending.then(
      ({ seq }) => {
        this.#written.set(key, seq);
        this.#settle();
      },
      (error: GreendotError) => this.#refused(key, error),
    );
    return sending;
  }

  discard(key: string): void {
    this.#written.delete(key);
    const outgoing = this.value.outgoing.filter((one) => one.key !== key);
    if (outgoing.length < this.value.outgoing.length) this.#put({ outgoing });
  }

  /**
   * Remove each stored message from `outgoing` as soon as this client has received the message from the room. Before that, the
   * message is not in `messages`, so its removal would hide the message for a moment.
   */
  #settle(): void {
    for (const [key, seq] of this.#written) if (seq <= this.#room.head || this.value.removed !== null) this.discard(key);
  }

  #refused(key: string, error: GreendotError): void {
    this.#put({ outgoing: this.value.outgoing.map((one) => (one.key === key ? { ...one, error } : one)) });
  }

  #joined(messages?: readonly RoomMessage<Body>[]): void {
    const { unread, count, typers, archived, mutedUntil, slowModeS } = this.#room;
    this.#put({ joined: true, removed: null, unread, count, typing: typers, archived, mutedUntil, slowModeS });
    this.#settle();
    // A server before 0.1.0 sends no messages with the join.
    const hasPage = this.#history !== undefined && (!!messages?.length || !this.#room.head || !this.#history);
    this.#transcript.begin(hasPage ? messages : undefined);
    this.#presents.list();
  }

  #told(message: RoomMessage<Body>): void {
    this.#transcript.told(message);
    if (message.key !== undefined) this.discard(message.key);
    this.#settle();
  }

  /** Discard the messages, because the user is no longer allowed to see them. */
  #removed(why: string): void {
    this.#transcript.end();
    this.#presents.end();
    const { messages, hasOlder, loading, typing, present, profiles, count, unread } = EMPTY;
    const none = { messages, hasOlder, loading, typing, present, profiles, count, unread };
    this.#put({ joined: false, removed: why, ...none });
    this.#settle();
  }

  /** Discard the messages of the previous user if another user has signed in. */
  #welcomed(user: string): void {
    if (this.#user !== null && this.#user !== user) {
      this.#transcript.end();
      this.#put({ messages: EMPTY.messages, outgoing: EMPTY.outgoing });
    }
    this.#user = user;
  }

  #put(part: Partial<RoomState<Body>>): void {
    const news = Object.entries(part).some(([name, value]) => !Object.is(value, this.value[name as keyof RoomState]));
    if (news) this.become({ ...this.value, ...part });
  }
}

const nameOf = (room: string): string => `room ${room}`;

/**
 * Return a source of the state of a room: its messages, the users in the room, and the users who type. While the source has a
 * subscriber, the client is in the room.
 */
export function roomSource<Body = unknown>(client: Greendot, room: string, options: RoomOptions = {}): Source<RoomState<Body>> {
  return sharedSource<RoomState<Body>>(client, nameOf(room), () => new RoomStore<Body>(client, room, options), EMPTY);
}

/**
 * Return the actions of a room. A message from `send` is at once in `outgoing` of the `roomSource` of this room. If this
 * source has no subscriber, `discard`, `loadOlder` and `join` have no effect.
 */
export function roomActions<Body = unknown, SignalBody = unknown>(client: Greendot, room: string): RoomActions<Body, SignalBody> {
  // Looked up at each call: the store exists only while a component is mounted.
  const store = () => shelfOf(client).find(nameOf(room)) as RoomStore<Body> | undefined;
  const own = client.room<Body, SignalBody>(room);
  return {
    room: own,
    send: (body, { key } = {}) => store()?.send(body, key) ?? own.send(body, key ? { key } : {}),
    react: (seq, reaction, on = true) => ignorable(own.react(seq, reaction, { on })),
    discard: (key) => store()?.discard(key),
    loadOlder: async () => store()?.loadOlder(),
    setTyping: (isTyping = true) => own.typing(isTyping),
    markRead: (seq) => ignorable(own.read(seq)),
    join: () => store()?.join(),
  };
}
