// What a program holds: one user's presence, rooms and inbox on a Greendot server.

import { Activity } from "./activity.js";
import type { GreendotError } from "./errors.js";
import { newKey, validId } from "./ids.js";
import { Inbox } from "./inbox.js";
import { MOST_RESUMED } from "./limits.js";
import type { ClientEvents, Connection, ConnectionState, GreendotOptions, Page, Undo } from "./options.js";
import { People } from "./people.js";
import type { Reason } from "./reasons.js";
import { Room } from "./room.js";
import { Session } from "./session.js";
import type { Presence, Privacy, RawEvent, RoomEntry, Status, Welcome } from "./wire.js";

const READS = { "notification.updated": [1, 2] };
const ROOM = "room:";

declare const VERSION: string; // put in by the build
const version = typeof VERSION === "undefined" ? "0.0.0" : VERSION;

/** One user's connection to a Greendot server, that keeps itself up. */
export class Greendot {
  /** How people stand. */
  readonly presence: People;
  /** What the user must not miss. */
  readonly inbox: Inbox;
  readonly status = {
    /** Set the user's own status, on all devices; `until` ends it. How the user stands now. */
    set: async (wanted: { status: Status; until?: number | Date | null; text?: string | null }): Promise<Presence> => {
      const { status, until = null, text = null } = wanted;
      const fold = (reply: { presence: Presence }) => this.presence.heard(reply.presence);
      const fields = { status, until: until === null ? null : Number(until), text };
      return (await this.#session.deliver("status", "status.set", fields, fold)).presence;
    },
  };
  readonly privacy = {
    /** Hide when the user was last seen, or the user from some. What is left out stays as it is. What is hidden now. */
    set: (wanted: Partial<Privacy>): Promise<Privacy> => this.#session.deliver("privacy", "privacy.set", wanted),
    get: (): Promise<Privacy> => this.#session.deliver("privacy", "privacy.set"),
  };
  #options: GreendotOptions;
  #session: Session;
  #rooms = new Map<string, Room<any, any>>();
  #activity: Activity;
  #unlisten: Undo[] = [];

  constructor(options: GreendotOptions) {
    if (options.device !== undefined) validId("device", options.device);
    this.#options = options;
    this.#session = new Session(options, {
      hello: (token, owner) => this.#hello(token, owner),
      event: (frame) => this.#received(frame),
      lost: () => this.#lost(),
      closed: (error) => this.#closed(error),
    });
    this.#activity = new Activity(this.#session.clock, () => this.#session.tell("activity"));
    this.presence = new People(this.#session);
    this.inbox = new Inbox(this.#session);
  }

  get state(): ConnectionState {
    return this.connection.state;
  }

  /** Why it is not online; null where there is nothing to say. */
  get reason(): Reason | null {
    return this.connection.reason;
  }

  /** Both, as one object that is another one after each change: what `on("state")` tells. */
  get connection(): Connection {
    return this.#session.connection;
  }

  /** What the server said last when it let us in; null before. */
  get welcome(): Welcome | null {
    return this.#session.welcome;
  }

  /** The user the token is for; null before the first welcome. */
  get user(): string | null {
    return this.welcome?.user ?? null;
  }

  /** How many commands wait to be sent, or for their answer. */
  get queued(): number {
    return this.#session.outbox.size;
  }

  /** Connect, and stay connected. While it waits for the next attempt: make that now. */
  connect(): void {
    const { page } = this.#session;
    if (!this.#unlisten.length && page) this.#listen(page);
    this.#session.connect();
  }

  /**
   * Leave: what waits to be sent is refused. The user may be offline at once; with `{ bye: false }` the server waits
   * some seconds for this device to return. `connect()` begins again, in the same rooms and watching the same people.
   */
  close({ bye = true }: { bye?: boolean } = {}): void {
    this.#session.close(bye);
  }

  /** Call `listener` with every such event; call what is returned to stop that. */
  on<Type extends keyof ClientEvents>(type: Type, listener: (event: ClientEvents[Type]) => void): Undo {
    return this.#session.events.on(type, listener);
  }

  /** The room of this name, always the same object. `Body` is the type of its messages. */
  room<Body = unknown, SignalBody = unknown>(name: string): Room<Body, SignalBody> {
    const known = this.#rooms.get(name) ?? new Room<Body, SignalBody>(this.#session, validId("room", name));
    this.#rooms.set(name, known);
    return known;
  }

  /** The rooms the user is a member of and the open ones, with how much is unread. */
  async rooms(): Promise<RoomEntry[]> {
    return (await this.#session.deliver<{ rooms: RoomEntry[] }>(Symbol(), "room.list")).rooms;
  }

  /** Say something fleeting to all devices of a user. Whether it was said: without a connection it is dropped. */
  signal(user: string, kind: string, body?: unknown, { key }: { key?: string } = {}): boolean {
    return this.#session.tell("signal.send", { user, kind, body, key });
  }

  /** Somebody is there. Called by itself in pages; throttled. */
  active(): void {
    this.#activity.active();
  }

  /** The server's time, as far as is known. For `lastSeenText`. */
  now(): number {
    return this.#session.now();
  }

  /** Any command of the protocol; its reply's data. For what has no method here. Without a connection: `disconnected`. */
  request<Reply = Record<string, unknown>>(type: string, fields: object = {}): Promise<Reply> {
    return this.#session.ask(type, fields);
  }

  async #hello(token: string, owner: string): Promise<object> {
    if (this.#session.cursors.leave(owner)) {
      this.#forget();
      await this.#session.cursors.load(owner);
    }
    const before = this.welcome;
    this.inbox.begin(this.#session.cursors.inbox);
    const followed = [...this.#rooms.values()].filter(({ cursor }) => cursor !== null).slice(0, MOST_RESUMED);
    const rooms = Object.fromEntries(followed.map(({ name, cursor }) => [name, cursor]));
    const inbox = this.inbox.cursor;
    const resumes = before || followed.length || inbox !== null;
    return {
      token,
      device: this.#options.device ?? (await this.#session.cursors.device(() => `js-${newKey()}`)),
      client: this.#options.client ?? { name: "greendot-js", version },
      supports: READS,
      resume: resumes ? { session: before?.session, rooms, inbox: inbox ?? undefined } : undefined,
    };
  }

  /** Another user is signed in: nothing of the one before is for this one. */
  #forget(): void {
    this.#session.welcome = null;
    for (const room of this.#rooms.values()) room.forget();
    this.presence.forget();
    this.inbox.forget();
  }

  #received(frame: RawEvent): void {
    const { type, trace } = frame;
    const data = frame.data as any;
    this.#session.events.emit("event", frame);
    if (type === "welcome") this.#welcomed(data);
    else if (type === "presence.changed") this.presence.heard(data);
    else if (type.startsWith("notification.") || type === "inbox.badge") this.inbox.heard(type, data);
    else if (type === "resync") this.#missed(data.scope);
    else if (type === "refresh") this.#unread(data.of);
    else if (data.room) this.#rooms.get(data.room)?.heard(type, data, trace);
    if (type === "signal") this.#session.events.emit("signal", data);
  }

  /** Bring the new link to where the last one was, then hand it what waits. */
  #welcomed(welcome: Welcome): void {
    this.#activity.reset();
    this.presence.restore();
    for (const room of this.#rooms.values()) {
      // A room may be called `constructor`.
      room.restore(Object.hasOwn(welcome.rooms, room.name) ? welcome.rooms[room.name] : undefined);
    }
    this.inbox.restore();
    this.#session.outbox.flush();
    this.#session.events.emit("welcome", welcome);
  }

  #missed(scope: string): void {
    if (scope.startsWith(ROOM)) this.#rooms.get(scope.slice(ROOM.length))?.missed();
    else this.inbox.missed();
  }

  /** The server could not show us something of this type. What is a record is fetched. */
  #unread(of: string): void {
    if (of === "notification.created") this.inbox.missed();
    else if (of === "room.message") for (const room of this.#rooms.values()) room.missed();
    else this.#session.events.emit("refresh", { of });
  }

  #lost(): void {
    for (const room of this.#rooms.values()) room.lost();
    this.inbox.lost();
  }

  #closed(error: GreendotError): void {
    for (const undo of this.#unlisten.splice(0)) undo();
    for (const room of this.#rooms.values()) room.stop(error);
    this.inbox.lost();
    this.presence.stop();
    this.#activity.reset();
    this.#session.outbox.fail(error);
    this.#session.cursors.save();
  }

  #listen(page: Page): void {
    this.#unlisten.push(page.on("leave", () => this.#session.cursors.save()));
    if (this.#options.activity === false) return;
    for (const sign of ["activity", "visibility"] as const) {
      this.#unlisten.push(page.on(sign, () => page.isVisible() && this.active()));
    }
  }
}
