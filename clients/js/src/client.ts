// The public client: one user's presence, rooms and inbox on a Greendot server.

import { Activity } from "./activity.js";
import type { GreendotError } from "./errors.js";
import { newKey, validId } from "./ids.js";
import { Inbox } from "./inbox.js";
import { MOST_RESUMED } from "./limits.js";
import type { ClientEvents, Connection, ConnectionState, GreendotOptions, Page, SignalOptions, Undo } from "./options.js";
import { People } from "./people.js";
import type { Reason } from "./reasons.js";
import { Room } from "./room.js";
import { Session } from "./session.js";
import type { Presence, Privacy, RawEvent, RoomEntry, Status, Welcome } from "./wire.js";

const READS = { "notification.updated": [1, 2] };

declare const VERSION: string; // defined by the build
const version = typeof VERSION === "undefined" ? "0.0.0" : VERSION;

/** Client of one user. It keeps a connection to a Greendot server and reconnects by itself. */
export class Greendot {
  /** Presence of other users. */
  readonly presence: People;
  /** The user's notifications. */
  readonly inbox: Inbox;
  readonly status = {
    /** Set the user's own status on all devices. It ends at `until`. Returns the user's new presence. */
    set: async (wanted: { status: Status; until?: number | Date | null; text?: string | null }): Promise<Presence> => {
      const { status, until = null, text = null } = wanted;
      const fields = { status, until: until && Number(until), text };
      const fold = (reply: { presence: Presence }) => this.presence._received(reply.presence);
      return (await this.#session._queue("status", "status.set", fields, fold)).presence;
    },
  };
  readonly privacy = {
    /** Hide the user's last-seen time, or hide the user from some users. Omitted fields keep their value. Returns all settings. */
    set: (wanted: Partial<Privacy>): Promise<Privacy> => this.#session._queue("privacy", "privacy.set", wanted),
    get: (): Promise<Privacy> => this.privacy.set({}),
  };
  #options: GreendotOptions;
  #session: Session;
  #rooms = new Map<string, Room<any, any>>();
  #activity: Activity;

  constructor(options: GreendotOptions) {
    if (options.device !== undefined) validId("device", options.device);
    this.#options = options;
    this.#session = new Session(options, {
      _hello: (token, owner) => this.#hello(token, owner),
      event: (frame) => this.#received(frame),
      _listen: (page) => this.#listen(page),
      _lost: () => this.#lost(),
      _closed: (error) => this.#closed(error),
    });
    this.#activity = new Activity(this.#session._clock, () => this.#session._trySend("activity"));
    this.presence = new People(this.#session);
    this.inbox = new Inbox(this.#session);
  }

  get state(): ConnectionState {
    return this.connection.state;
  }

  /** Reason why the client is not online. null in the states `idle`, `connecting` and `online`. */
  get reason(): Reason | null {
    return this.connection.reason;
  }

  /** State and reason. A new object after each change; `on("state")` delivers it. */
  get connection(): Connection {
    return this.#session.connection;
  }

  /** The server's last `welcome`; null before the first one. */
  get welcome(): Welcome | null {
    return this.#session.welcome;
  }

  /** The user of the token; null before the first welcome. */
  get user(): string | null {
    return this.welcome?.user ?? null;
  }

  /** Number of commands that wait to be sent, or for their answer. */
  get queued(): number {
    return this.#session._outbox.size;
  }

  /** Connect, and stay connected. In state `waiting` or `offline`, make the next attempt now. */
  connect(): void {
    this.#session.connect();
  }

  /**
   * Close the connection and reject commands that wait. The user may go offline at once. With `{ bye: false }` the
   * server waits some seconds for this device to return. `connect()` starts again, with the same rooms and watches.
   */
  close({ bye = true }: { bye?: boolean } = {}): void {
    this.#session.close(bye);
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. */
  on<Type extends keyof ClientEvents>(type: Type, listener: (event: ClientEvents[Type]) => void): Undo {
    return this.#session._events.on(type, listener);
  }

  /** Return the room of this name, always the same object. `Body` is the type of message bodies. */
  room<Body = unknown, SignalBody = unknown>(name: string): Room<Body, SignalBody> {
    const known = this.#rooms.get(name) ?? new Room<Body, SignalBody>(this.#session, validId("room", name));
    this.#rooms.set(name, known);
    return known;
  }

  /** List the rooms of which the user is a member and the open rooms, with their unread counts. */
  async rooms(): Promise<RoomEntry[]> {
    return (await this.#session._queue<{ rooms: RoomEntry[] }>(Symbol(), "room.list")).rooms;
  }

  /**
   * Send a signal to all devices of a user. Returns false if there is no connection: the signal is dropped. With
   * `reply`, returns a promise that fails if the server refuses the signal.
   */
  signal(user: string, kind: string, body: unknown, options: SignalOptions & { reply: true }): Promise<void>;
  signal(user: string, kind: string, body?: unknown, options?: { key?: string }): boolean;
  signal(user: string, kind: string, body?: unknown, options?: SignalOptions): boolean | Promise<void> {
    return this.#session.signal({ user, kind, body }, options);
  }

  /** Report that the user is active. Pages call it automatically. Throttled. */
  active(): void {
    this.#activity.active();
  }

  /** Return the estimated time of the server, for `lastSeenText`. */
  now(): number {
    return this.#session.now();
  }

  /** Send any command of the protocol and return the data of its reply. Without a connection: `disconnected`. */
  request<Reply = Record<string, unknown>>(type: string, fields: object = {}): Promise<Reply> {
    return this.#session.ask(type, fields);
  }

  async #hello(token: string, owner: string): Promise<object> {
    if (this.#session._cursors._leave(owner)) {
      this.#forget();
      await this.#session._cursors._load(owner);
    }
    const before = this.welcome;
    this.inbox._begin(this.#session._cursors._inbox);
    const followed = [...this.#rooms.values()].filter((room) => room._cursor !== null).slice(0, MOST_RESUMED);
    const rooms = Object.fromEntries(followed.map((room) => [room.name, room._cursor]));
    const inbox = this.inbox._cursor;
    const resumes = before || followed.length || inbox !== null;
    return {
      token,
      device: this.#options.device ?? (await this.#session._cursors.device(() => `js-${newKey()}`)),
      client: this.#options.client ?? { name: "greendot-js", version },
      supports: READS,
      resume: resumes ? { session: before?.session, rooms, inbox: inbox ?? undefined } : undefined,
    };
  }

  /** Discard all data of the previous user: another user is signed in. */
  #forget(): void {
    this.#session.welcome = null;
    this.#rooms.forEach((room) => room._forget());
    this.presence._forget();
    this.inbox._forget();
  }

  #received(frame: RawEvent): void {
    const { type, trace } = frame;
    const data = frame.data as any;
    this.#session._events.emit("event", frame);
    if (type === "welcome") this.#welcomed(data);
    else if (type === "presence.changed") this.presence._received(data);
    else if (type === "resync") this.#missed(data.scope);
    else if (type === "refresh") this.#unread(data.of);
    else {
      this.inbox._received(type, data);
      this.#rooms.get(data.room)?._received(type, data, trace);
    }
    if (type === "signal") this.#session._events.emit("signal", data);
  }

  /** Restore watches, rooms and inbox on the new link, then send the commands that wait. */
  #welcomed(welcome: Welcome): void {
    this.#activity.reset();
    this.presence._restore();
    const states = new Map(Object.entries(welcome.rooms)); // a room may be called `constructor`
    this.#rooms.forEach((room, name) => room._restore(states.get(name)));
    this.inbox._restore();
    this.#session._outbox._flush();
    this.#session._events.emit("welcome", welcome);
  }

  #missed(scope: string): void {
    const [, room] = scope.split(":"); // `inbox` or `room:NAME`
    if (room) this.#rooms.get(room)?._missed();
    else this.inbox._missed();
  }

  /** Fetch the records of an event type that the server could not send to this version of the client. */
  #unread(of: string): void {
    if (of === "notification.created") this.inbox._missed();
    else if (of === "room.message") this.#rooms.forEach((room) => room._missed());
    else this.#session._events.emit("refresh", { of });
  }

  #lost(): void {
    this.#rooms.forEach((room) => room._lost());
    this.inbox._lost();
  }

  #closed(error: GreendotError): void {
    this.#rooms.forEach((room) => room._stop(error));
    this.inbox._lost();
    this.presence._stop();
    this.#activity.reset();
    this.#session._outbox._fail(error);
    this.#session._cursors._save();
  }

  #listen(page: Page): Undo[] {
    const active = () => this.#options.activity !== false && page.isVisible() && this.active();
    return [page.on("leave", () => this.#session._cursors._save()), page.on("activity", active), page.on("visibility", active)];
  }
}
