// What a program holds: one user's presence, rooms and inbox on a Greendot server.

import { Activity } from "./activity.js";
import { systemClock } from "./clock.js";
import type { Core } from "./core.js";
import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import { newKey, validId } from "./ids.js";
import { Inbox } from "./inbox.js";
import { disconnected, encode } from "./link.js";
import type { ClientEvents, Connection, ConnectionState, GreendotOptions, Page, Undo, WebSocketMaker } from "./options.js";
import { Outbox } from "./outbox.js";
import { browserPage } from "./page.js";
import { People } from "./people.js";
import type { Reason } from "./reasons.js";
import { Room } from "./room.js";
import { Session } from "./session.js";
import { Cursors, memoryStore } from "./store.js";
import { Tokens } from "./tokens.js";
import type { Presence, Privacy, RawEvent, RoomEntry, Status, Welcome } from "./wire.js";

const READS = { "notification.updated": [1, 2] };
const MOST_RESUMED = 400; // rooms that fit into a hello; the others are caught up by joining again
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
      return (await this.#core.ask("status.set", { status, until: until === null ? null : Number(until), text }, fold)).presence;
    },
  };
  readonly privacy = {
    /** Hide when the user was last seen, or the user from some. What is left out stays as it is. What is hidden now. */
    set: (wanted: Partial<Privacy>): Promise<Privacy> => this.#core.ask("privacy.set", wanted),
    get: (): Promise<Privacy> => this.#core.ask("privacy.set", {}),
  };
  #options: GreendotOptions;
  #core: Core;
  #events: Emitter<ClientEvents>;
  #session: Session;
  #outbox: Outbox;
  #cursors: Cursors;
  #rooms = new Map<string, Room<any, any>>();
  #activity: Activity;
  #page: Page | null;
  #unlisten: Undo[] = [];

  constructor(options: GreendotOptions) {
    const { clock = systemClock, random = Math.random, page = browserPage() } = options;
    if (options.device !== undefined) validId("device", options.device);
    const url = addressOf(options.url);
    this.#options = options;
    this.#page = page;
    const threw = (error: unknown, type?: unknown) => this.#threw(error, type);
    const failed = (error: GreendotError) => this.#events.emit("error", error);
    this.#events = new Emitter(threw);
    this.#cursors = new Cursors(options.storage ?? memoryStore(), clock, failed);
    this.#session = new Session({
      open: () => new (maker(options))(url),
      tokens: new Tokens(options.getToken, clock),
      clock,
      random,
      page,
      backoff: options.backoff,
      hello: (token, owner) => this.#hello(token, owner),
      state: (connection) => this.#events.emit("state", connection),
      event: (frame) => this.#received(frame),
      error: failed,
      lost: () => this.#lost(),
      closed: (error) => this.#closed(error),
    });
    this.#outbox = new Outbox(options.queue, (command, fold) => this.#session.transmit(command, fold), clock);
    this.#core = {
      clock,
      events: this.#events,
      cursors: this.#cursors,
      online: () => this.#session.online,
      visible: () => page?.isVisible() ?? true,
      now: () => this.#session.now(),
      tell: (type, fields) => this.#session.tell(type, fields),
      ask: (type, fields, fold) => this.#session.persist(type, fields, fold),
      deliver: (lane, type, fields, fold) => this.#deliver(lane, type, fields, fold),
      failed,
      threw,
    };
    this.#activity = new Activity(clock, () => this.#session.tell("activity"));
    this.presence = new People(this.#core);
    this.inbox = new Inbox(this.#core);
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
    return this.#outbox.size;
  }

  /** Connect, and stay connected. While it waits for the next attempt: make that now. */
  connect(): void {
    if (!this.#unlisten.length && this.#page) this.#listen(this.#page);
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
    return this.#events.on(type, listener);
  }

  /** The room of this name, always the same object. `Body` is the type of its messages. */
  room<Body = unknown, SignalBody = unknown>(name: string): Room<Body, SignalBody> {
    const known = this.#rooms.get(name) ?? new Room<Body, SignalBody>(this.#core, validId("room", name));
    this.#rooms.set(name, known);
    return known;
  }

  /** The rooms the user is a member of and the open ones, with how much is unread. */
  async rooms(): Promise<RoomEntry[]> {
    return (await this.#core.ask<{ rooms: RoomEntry[] }>("room.list")).rooms;
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

  /** Any command of the protocol; its reply's data. For what has no method here. */
  request<Reply = Record<string, unknown>>(type: string, fields: object = {}): Promise<Reply> {
    return this.#core.ask(type, fields);
  }

  async #deliver<Reply>(lane: string, type: string, fields: object, fold?: (reply: Reply) => void): Promise<Reply> {
    const { state, reason } = this.connection;
    if (state === "closed") throw new GreendotError("closed", reason!.text);
    return this.#outbox.send(lane, encode(type, fields), fold);
  }

  async #hello(token: string, owner: string): Promise<object> {
    if (this.#cursors.leave(owner)) {
      this.#forget();
      await this.#cursors.load(owner);
    }
    const before = this.welcome;
    this.inbox.begin(this.#cursors.inbox);
    const followed = [...this.#rooms.values()].filter(({ cursor }) => cursor !== null).slice(0, MOST_RESUMED);
    const rooms = Object.fromEntries(followed.map(({ name, cursor }) => [name, cursor]));
    const inbox = this.inbox.cursor;
    const resumes = before || followed.length || inbox !== null;
    return {
      token,
      device: this.#options.device ?? (await this.#cursors.device(() => `js-${newKey()}`)),
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
    this.#events.emit("event", frame);
    if (type === "welcome") this.#welcomed(data);
    else if (type === "presence.changed") this.presence.heard(data);
    else if (type.startsWith("notification.") || type === "inbox.badge") this.inbox.heard(type, data);
    else if (type === "resync") this.#missed(data.scope);
    else if (type === "refresh") this.#unread(data.of);
    else if (data.room) this.#rooms.get(data.room)?.heard(type, data, trace);
    if (type === "signal") this.#events.emit("signal", data);
  }

  /** Bring the new link to where the last one was, then hand it what waits. */
  #welcomed(welcome: Welcome): void {
    this.#activity.reset();
    this.presence.restore();
    for (const room of this.#rooms.values()) room.restore(welcome.rooms[room.name]);
    this.inbox.restore();
    this.#outbox.flush();
    this.#events.emit("welcome", welcome);
  }

  #missed(scope: string): void {
    if (scope.startsWith(ROOM)) this.#rooms.get(scope.slice(ROOM.length))?.missed();
    else this.inbox.missed();
  }

  /** The server could not show us something of this type. What is a record is fetched. */
  #unread(of: string): void {
    if (of === "notification.created") this.inbox.missed();
    else if (of === "room.message") for (const room of this.#rooms.values()) room.missed();
    else this.#events.emit("refresh", { of });
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
    this.#outbox.fail(error);
    this.#cursors.save();
  }

  #listen(page: Page): void {
    this.#unlisten.push(page.onLeave(() => this.#cursors.save()));
    if (this.#options.activity === false) return;
    this.#unlisten.push(page.onActivity(() => page.isVisible() && this.active()));
    this.#unlisten.push(page.onVisible((visible) => visible && this.active()));
  }

  #threw(error: unknown, type: unknown): void {
    console.error("greendot: a listener threw", error);
    if (type === "error") return; // told of itself it would throw for ever
    const message = `a listener threw: ${(error as Error)?.message ?? error}`;
    this.#events.emit("error", new GreendotError("listener", message, false, null, error));
  }
}

function maker({ webSocket = globalThis.WebSocket as WebSocketMaker | undefined }: GreendotOptions): WebSocketMaker {
  if (webSocket) return webSocket;
  throw disconnected("there is no WebSocket here: give one in the options, `webSocket` (in Node 20 that of the package ws)");
}

/** Where to connect. Throws if nobody can. */
function addressOf(given: string): string {
  let url;
  try {
    url = new URL(given, globalThis.location?.href);
  } catch {
    throw new GreendotError("bad_field", `the url ${JSON.stringify(given)} is not like wss://example.com`);
  }
  url.protocol = url.protocol.replace(/^http/, "ws");
  if (!/^wss?:$/.test(url.protocol)) {
    throw new GreendotError("bad_field", `the url ${JSON.stringify(given)} is not like wss://example.com`);
  }
  if (url.pathname === "/") url.pathname = "/v1/connect";
  return url.href;
}
