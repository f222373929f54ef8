// Room: its messages, the users who type, the users in the room. The client joins the room again after a reconnect.

import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import { newKey } from "./ids.js";
import { MOST_SENT, PAGE } from "./limits.js";
import type { RoomEvents, SignalOptions, Typing, Undo } from "./options.js";
import type { Lane } from "./outbox.js";
import type { Session } from "./session.js";
import { Stream } from "./stream.js";
import { Keystrokes, Typists } from "./typing.js";
import type { Joined, PresentPage, ReaderCount, ReceiptPage, RoomMessage, RoomState, Signal, Typer, Written } from "./wire.js";

const EVENTS: Record<keyof RoomEvents, 1> = {
  message: 1,
  typing: 1,
  entered: 1,
  left: 1,
  count: 1,
  unread: 1,
  joined: 1,
  removed: 1,
  signal: 1,
  resync: 1,
  receipt: 1,
  receipt_count: 1,
  profile: 1,
  archived: 1,
  muted: 1,
  slow_mode: 1,
};

interface Moderated {
  archived?: boolean;
  slow_mode_s?: number;
  muted_until?: number | null;
}

interface JoinReply extends Joined<any>, Moderated {
  truncated: boolean;
  typing: (Typer & { expires_in_ms: number })[];
  typing_count: number;
}

interface Bounds {
  before?: number;
  after?: number;
  limit?: number;
}

interface History<Body> {
  messages: RoomMessage<Body>[];
}

/** Room of the client, from `client.room(name)`. */
export class Room<Body = unknown, SignalBody = unknown> {
  readonly name: string;
  /** Number of the newest known message; 0 before the first join. */
  head = 0;
  /** Number of users in the room; null before the first join, and after a leave or a removal. */
  count: number | null = null;
  /** Whether the room is joined on this connection. */
  joined = false;
  /** Whether the app has archived the room. An archived room is read-only. */
  archived = false;
  /** End of the user's mute, in milliseconds UTC. Infinity: no end. null: the user is not muted. */
  mutedUntil: number | null = null;
  /** In slow mode, the least number of seconds between two messages of one user. 0: no slow mode. */
  slowModeS = 0;
  #core: Session;
  #events: Emitter<RoomEvents<Body, SignalBody>>;
  #stream: Stream<RoomMessage<Body>>;
  #typists: Typists;
  #keystrokes: Keystrokes;
  #typing: Typing;
  #wanted = 0; // number of `join` calls, minus the number of `leave` calls
  #after: number | null = null; // option `after` of the last `join` call before the room is joined
  #history: number | undefined; // option `history` of a `join` call that the server has not answered yet
  #said = false; // on this connection, `room.join` was sent, and no `room.leave` after it
  #entry = 0; // number of the last `room.join` command; answers to earlier `room.join` commands are ignored
  #waiters: ((error?: GreendotError, joined?: Joined<Body>) => void)[] = []; // `join` calls that wait for the answer
  #marker = 0; // number of the last message that the user has read
  #endMute: Undo = () => {}; // cancels the timer of the mute
  #sent = new Set<string>(); // keys that this client has sent, and whose events may still come

  /** @internal */
  constructor(core: Session, name: string) {
    this.name = name;
    this.#core = core;
    this.#events = new Emitter<RoomEvents<Body, SignalBody>>(core._threw, EVENTS);
    this.#typing = { room: name, typers: [], count: 0 };
    this.#typists = new Typists(core._clock, () => this.#typingChanged());
    this.#keystrokes = new Keystrokes(core._clock, (type) => this.joined && core._tell(type, { room: name }), () => core.typing);
    this.#stream = new Stream({
      head: async () => (await this.#page({ limit: 1 })).at(-1)?.seq ?? 0,
      page: (after) => this.#page({ after, limit: PAGE }),
      _tell: (message) => this.#tell(message),
      gap: (gap) => {
        this.#advance(gap.head);
        this.#events.emit("resync", gap);
      },
      _failed: core._failed,
      _moved: () => core._cursors._moveRoom(name, this.#stream.last),
    });
  }

  /** Number of unread messages. Edits, deletions and reactions count as messages. */
  get unread(): number {
    return Math.max(0, this.head - this.#marker);
  }

  /** Users who type, and the number of these users. The object is a new one after each change. */
  get typers(): Typing {
    return this.#typing;
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
  on<Type extends keyof RoomEvents>(type: Type, listener: (event: RoomEvents<Body, SignalBody>[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Join this room, now and after every reconnect. Without a connection, the call waits for a connection. With `after`,
   * the room first delivers the messages after this number, as events. Without `after`: if the client's `storage` (by
   * default in memory) holds the number of the last delivered message, the room continues after this message. Otherwise
   * the room delivers only new messages. If the client is already in the room, `after` has no effect. With `history`, the
   * result contains this number of newest messages (at most 100), and the room delivers all later messages.
   * The client counts the calls of `join`: it leaves the room when `leave` was called as often as `join`.
   */
  join({ after, history }: { after?: number; history?: number } = {}): Promise<Joined<Body>> {
    if (after !== undefined && history !== undefined) throw new GreendotError("bad_field", "give `after` or `history`, not both");
    this.#wanted += 1;
    if (after !== undefined && this.#stream.last === null) this.#after = after;
    if (history !== undefined) this.#history = Math.max(history, this.#history ?? 0);
    else if (this.joined) return Promise.resolve(this.#standing());
    const promise = new Promise<Joined<Body>>((resolve, reject) => {
      this.#waiters.push((error, joined) => (error ? reject(error) : resolve(joined!)));
    });
    promise.catch(() => {}); // the caller may ignore the promise: the event `removed` also reports a refusal
    this.#plan();
    return promise;
  }

  /** Undo one call of `join`. The client leaves the room when `leave` was called as often as `join`. */
  leave(): void {
    if (!this.#wanted || --this.#wanted) return;
    this.#outside(new GreendotError("closed", "room left"));
    this.#plan();
  }

  /**
   * Send a message. Resolves when the server has stored the message. Without a connection, messages wait in order. If a
   * connection is lost, the client sends the message again, with the same `key`. The server stores only one message with
   * this key. By default, the client generates a new key for each call.
   */
  send(body: Body, options?: { key?: string }): Promise<Written> {
    this.#keystrokes.ended(); // a message ends the typing
    return this.#write("room.send", { body }, options);
  }

  /** Give the message number `ref` a new body. */
  edit(ref: number, body: Body, options?: { key?: string }): Promise<Written> {
    return this.#write("room.edit", { ref, body }, options);
  }

  /** Delete the message with number `ref`. */
  delete(ref: number, options?: { key?: string }): Promise<Written> {
    return this.#write("room.delete", { ref }, options);
  }

  /** Add a reaction of this user to the message with number `ref`. With `on: false`, remove the reaction. A second call has no further effect. */
  react(ref: number, reaction: string, { on = true, key }: { on?: boolean; key?: string } = {}): Promise<Written> {
    return this.#write("room.react", { ref, reaction, on }, { key });
  }

  /**
   * Fetch up to `limit` messages in ascending order. With `after`: the first messages that follow this number. With
   * `before`: the last messages before this number. With neither: the newest messages. `after` and `before` together fail.
   */
  async history(bounds: Bounds = {}): Promise<RoomMessage<Body>[]> {
    return (await this.#fetch<History<Body>>("room.history", bounds)).messages;
  }

  /**
   * Mark the messages up to number `seq` as read; by default all messages. Without a connection, the call waits for a
   * connection. Returns the number of messages that are still unread.
   */
  async read(seq = this.head): Promise<number> {
    this.#readUpTo(seq);
    // The server counted `unread` when it processed the command. Later messages may be here already: do not compute `head`.
    return (await this.#fetch<{ unread: number }>("room.read", { seq }, `read ${this.name}`)).unread;
  }

  /**
   * Report that the user types. Call `typing()` at every keystroke. The client sends a report at most once in the interval
   * that the server sets (`welcome.typing.repeat_ms`, by default 3 s). Without calls, the typing ends by itself after some
   * seconds. To end the typing earlier, for example when the field is empty, call `typing(false)`.
   */
  typing(isTyping = true): void {
    this.#keystrokes.typing(isTyping);
  }

  /** Fetch a page of the users in the room, ordered by id, with their names and info. */
  present(page: { after?: string; limit?: number } = {}): Promise<PresentPage> {
    return this.#fetch("room.present", page);
  }

  /**
   * Fetch a page of read receipts, ordered by user id. With `seq`, fetch only the number of users who have read the message
   * with this number. In large rooms, a call without `seq` fails with `too_many`. A call also fails if the app has not
   * turned on read receipts for the room.
   */
  receipts(page: { seq: number }): Promise<ReaderCount>;
  receipts(page?: { after?: string; limit?: number }): Promise<ReceiptPage>;
  receipts(page = {}): Promise<any> {
    return this.#fetch("room.receipts", page);
  }

  /**
   * Send a signal to the users in the room, for example the position of a pointer. A signal is not stored. If a receiver
   * reads slowly, signals for this receiver wait in the server. A newer signal then replaces a waiting signal that has
   * the same sender, kind and `key`. Returns whether the client has sent the signal: false without a connection. With
   * `reply: true`, returns a promise that fails if the server refuses the signal, or if there is no connection.
   */
  signal(kind: string, body: SignalBody, options: SignalOptions & { reply: true }): Promise<void>;
  signal(kind: string, body?: SignalBody, options?: { key?: string }): boolean;
  signal(kind: string, body?: SignalBody, options?: SignalOptions): boolean | Promise<void> {
    return this.#core.signal({ room: this.name, kind, body }, options);
  }

  // Called by the client

  /** @internal Number of the last delivered message; null if the program has not joined the room. A resumed session continues after this message. */
  get _cursor(): number | null {
    return this.#wanted ? this.#stream.last : null;
  }

  /** @internal */
  _restore(state: RoomState | undefined): void {
    this.#said = false;
    if (!this.#wanted) return;
    if (state?.truncated) this.#stream._reach(state.head);
    // If the session was resumed, the server has already put this client back into the room. Join nevertheless, because the
    // reply has the users who type, the number of users in the room, and the number of unread messages.
    this.#enter(!state);
  }

  /** @internal */
  _lost(): void {
    this.joined = this.#said = false;
    this.#stream._restart();
    this.#keystrokes.ended(true);
  }

  /** @internal Reject the `join` calls that wait for an answer, because the client is closed. */
  _stop(error: GreendotError): void {
    this._lost();
    this.#endMute();
    this.#typists.clear();
    this.#answer(error);
  }

  /** @internal Forget which messages were delivered and read. Called for a new user of the client, and after a removal. */
  _forget(): void {
    this.#stream._forget();
    this.head = this.#marker = 0;
  }

  /** @internal */
  _missed(): void {
    this.#stream._miss();
  }

  /** @internal */
  _heard(type: string, data: any, trace: string | undefined): void {
    if (!this.#wanted && type !== "room.changed") return; // the server sent this event before it processed `room.leave`
    switch (type) {
      case "room.message":
        if (trace && this.#sent.delete(trace)) data.key = trace;
        return this.#stream._offer(data);
      case "typing.started":
        return this.#typists._started(data, data.expires_in_ms);
      case "typing.stopped":
        return this.#typists._stopped(data.user);
      case "typing.count":
        return this.#typists._counted(data.count, data.expires_in_ms);
      case "room.entered":
      case "room.left":
        this.#counted(Math.max((this.count ?? 0) + (type === "room.left" ? -1 : 1), 0));
      // falls through
      case "room.profile":
      case "room.receipt":
      case "room.receipt_count":
        return this.#events.emit(type.slice(5) as "profile", data);
      case "room.count":
        return this.#counted(data.count);
      case "signal":
        return this.#events.emit("signal", data as Signal<SignalBody>);
      case "room.changed":
        if (data.removed) this.#removed(data.reason);
        else if (data.read !== undefined) this.#readUpTo(data.read);
        else this.#moderated(data);
    }
  }

  /** Fetch a page of the history. Fails if the connection is lost: this command is not sent again. */
  async #page(bounds: Bounds): Promise<RoomMessage<Body>[]> {
    return (await this.#core.ask<History<Body>>("room.history", { room: this.name, ...bounds })).messages;
  }

  #plan(): void {
    queueMicrotask(() => {
      // If the client is already in the room, it joins again to get the messages of the option `history`.
      const isAgain = this.joined && this.#history !== undefined;
      if (!this.#core.online || (this.#wanted > 0 === this.#said && !isAgain)) return;
      if (this.#wanted) return this.#enter(true);
      this.#said = false;
      this.#core._tell("room.leave", { room: this.name });
    });
  }

  #enter(recovering: boolean): void {
    const entry = ++this.#entry;
    const history = this.#history;
    const isNumbered = recovering && history === undefined;
    const after = (isNumbered ? (this.#stream.last ?? this.#after ?? this.#core._cursors.room(this.name)) : null) ?? undefined;
    this.#said = true;
    this.#core
      .ask<JoinReply>("room.join", { room: this.name, after, history }, (reply) => {
        if (entry === this.#entry && this.#said) this.#entered(reply, after, history !== undefined);
      })
      .catch((error: GreendotError) => {
        if (entry !== this.#entry || error.code === "disconnected") return; // the next connection joins again
        this.#said = false;
        const isFirst = this.#waiters.length > 0;
        this.#removed(error.code, error);
        if (!isFirst) this.#core._failed(error);
      });
  }

  #entered(reply: JoinReply, after: number | undefined, hasHistory: boolean): void {
    this.joined = true;
    this.#stream._follow(after ?? reply.head);
    this.#after = null;
    this.#history = undefined;
    this.#marker = Math.max(this.#marker, reply.head - reply.unread);
    // Deliver the reply's messages before `head` moves to the reply's head.
    for (const message of reply.messages) this.#stream._offer(message);
    // Fetch messages that the reply does not contain. With `history`, the reply has only the newest messages. If the client
    // was in the room earlier, messages between the last delivered message and the first message of the reply may be missing.
    if (reply.truncated || hasHistory) this.#stream._reach(reply.head);
    this.#advance(reply.head);
    this.#typists.clear();
    for (const typer of reply.typing) this.#typists._started(typer, typer.expires_in_ms);
    // In a large room the reply has only the number of typers, not the time at which each typing ends.
    if (reply.typing_count > reply.typing.length) this.#typists._counted(reply.typing_count, this.#core.typing.hold_ms);
    this.#counted(reply.present);
    this.#moderated({ archived: false, slow_mode_s: 0, muted_until: 0, ...reply });
    this.#events.emit("unread", this.unread);
    const joined = this.#standing(hasHistory ? reply.messages : []);
    this.#events.emit("joined", joined);
    this.#answer(undefined, joined);
  }

  /** Resolve the `join` calls that wait for the answer. With `error`, reject them instead. */
  #answer(error?: GreendotError, joined?: Joined<Body>): void {
    for (const waiter of this.#waiters.splice(0)) waiter(error, joined);
  }

  #standing(messages: RoomMessage<Body>[] = []): Joined<Body> {
    return { room: this.name, head: this.head, unread: this.unread, present: this.count ?? 0, messages };
  }

  #removed(why: string | null, error = new GreendotError("not_a_member", why ?? "no longer in this room")): void {
    this.#wanted = 0;
    this.#said = false;
    this.#outside(error);
    this._forget(); // if the room is deleted and created again, its numbers start at 1
    this.#events.emit("removed", why);
  }

  #outside(error: GreendotError): void {
    this.joined = false;
    this.count = null;
    this.#after = null;
    this.#history = undefined;
    this.#endMute();
    this.#stream._forget();
    this.#typists.clear();
    this.#keystrokes.ended();
    this.#answer(error);
  }

  #write(type: string, fields: object, { key = newKey() }: { key?: string | undefined } = {}): Promise<Written> {
    this.#sent.add(key);
    const [oldest] = this.#sent;
    if (this.#sent.size > MOST_SENT) this.#sent.delete(oldest!);
    // The key is also sent in the field `trace`, which the server copies into the event of the message. So this client
    // recognizes its own message, whether the event comes before or after the answer.
    return this.#fetch(type, { ...fields, key, trace: key }, `room ${this.name}`);
  }

  /** Send a command of this room and return its answer. If the connection is lost, the command is sent again. */
  #fetch<Reply>(type: string, fields: object, lane: Lane = Symbol()): Promise<Reply> {
    return this.#core._deliver(lane, type, { room: this.name, ...fields });
  }

  /** Emit an event on the room and on the client. */
  #emit(type: "message" | "typing", event: any): void {
    this.#events.emit(type, event);
    this.#core._events.emit(type, event);
  }

  #tell(message: RoomMessage<Body>): void {
    if (message.ref === null) this.#typists._stopped(message.user);
    this.#advance(Math.max(this.head, message.seq)); // a message that was fetched late is not the newest
    this.#emit("message", message);
  }

  #advance(head: number): void {
    if (head === this.head) return;
    this.head = head;
    this.#events.emit("unread", this.unread);
  }

  #readUpTo(seq: number): void {
    if (seq <= this.#marker) return;
    this.#marker = seq;
    this.#events.emit("unread", this.unread);
  }

  #moderated({ archived = this.archived, slow_mode_s = this.slowModeS, muted_until }: Moderated): void {
    if (archived !== this.archived) this.#events.emit("archived", (this.archived = archived));
    if (slow_mode_s !== this.slowModeS) this.#events.emit("slow_mode", (this.slowModeS = slow_mode_s));
    if (muted_until !== undefined) this.#mute(muted_until ?? Infinity);
  }

  /** Set the end of the mute. A timer ends the mute at this time, because the server then sends no event. */
  #mute(end: number): void {
    this.#endMute();
    const left = end - this.#core.now();
    if (left > 0 && left < Infinity) this.#endMute = this.#core._clock.after(left, () => this.#mute(end));
    const until = left > 0 ? end : null;
    if (until !== this.mutedUntil) this.#events.emit("muted", (this.mutedUntil = until));
  }

  #counted(count: number): void {
    if (count === this.count) return;
    this.count = count;
    this.#events.emit("count", count);
  }

  #typingChanged(): void {
    const { typers, count } = this.#typists;
    this.#emit("typing", (this.#typing = { room: this.name, typers, count }));
  }
}
