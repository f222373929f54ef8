// One room: messages, typing, occupants. The room is joined again after every reconnect.

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

/** `client.room(name)`: one room. */
export class Room<Body = unknown, SignalBody = unknown> {
  readonly name: string;
  /** Number of the newest known message; 0 before the room is joined. */
  head = 0;
  /** Number of users in the room; null before it is joined. */
  count: number | null = null;
  /** Whether the room is joined on this connection. */
  joined = false;
  /** Whether the app has archived the room: it can only be read. */
  archived = false;
  /** When the mute of the user ends, in milliseconds UTC; Infinity: no end; null: the user is not muted. */
  mutedUntil: number | null = null;
  /** Seconds between two messages of one user in slow mode; 0: no slow mode. */
  slowModeS = 0;
  #core: Session;
  #events: Emitter<RoomEvents<Body, SignalBody>>;
  #stream: Stream<RoomMessage<Body>>;
  #typists: Typists;
  #keystrokes: Keystrokes;
  #typing: Typing;
  #wanted = 0; // `join` calls without a `leave`
  #after: number | null = null; // the option `after` of the first join
  #history: number | undefined; // option `history` of the join that the server has not answered yet
  #said = false; // a join was sent, and no leave after it
  #entry = 0; // number of the last join sent; answers to older joins are ignored
  #waiters: ((error?: GreendotError, joined?: Joined<Body>) => void)[] = []; // `join` calls that wait for the answer
  #marker = 0; // number of the last read message
  #endMute: Undo = () => {}; // cancels the timer of the mute
  #sent = new Set<string>(); // keys of own messages whose events may still come

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

  /** Number of unread messages. Edits, deletions and reactions count too. */
  get unread(): number {
    return Math.max(0, this.head - this.#marker);
  }

  /** Users who type, and their number. Returns the same object until one of these changes. */
  get typers(): Typing {
    return this.#typing;
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
  on<Type extends keyof RoomEvents>(type: Type, listener: (event: RoomEvents<Body, SignalBody>[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Join this room, now and after every reconnect. Waits for a connection. With `after`, the messages after this number
   * are delivered first. Without `after`, the client continues after the last message that the option `storage` keeps; if
   * there is none, only new messages are delivered. If the room is joined already, `after` has no effect.
   * With `history`, the result has this number of newest messages (at most 100), and the events continue after them.
   * Joins are counted: the client leaves the room after one `leave` for each `join`.
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
    promise.catch(() => {}); // the caller may ignore the promise; a removal is also an event
    this.#plan();
    return promise;
  }

  /** Undo one `join`. The last `leave` leaves the room. Without a `join` it does nothing. */
  leave(): void {
    if (!this.#wanted || --this.#wanted) return;
    this.#outside(new GreendotError("closed", "room left"));
    this.#plan();
  }

  /**
   * Send a message. Resolves when the server has stored the message. Without a connection, messages wait in order. The
   * client may send a message several times. The server stores it once, because each time it has the same `key` (by
   * default a generated one).
   */
  send(body: Body, options?: { key?: string }): Promise<Written> {
    this.#keystrokes.ended(); // a message ends the typing
    return this.#write("room.send", { body }, options);
  }

  /** Replace the body of the message with number `ref`. */
  edit(ref: number, body: Body, options?: { key?: string }): Promise<Written> {
    return this.#write("room.edit", { ref, body }, options);
  }

  /** Delete the message with number `ref`. */
  delete(ref: number, options?: { key?: string }): Promise<Written> {
    return this.#write("room.delete", { ref }, options);
  }

  /** Set a reaction of this user to the message with number `ref`, or remove the reaction with `on: false`. A repeated call has no effect. */
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

  /** Mark messages up to number `seq` (by default all) as read. Waits for a connection. Returns the number of unread messages. */
  async read(seq = this.head): Promise<number> {
    this.#readUpTo(seq);
    // Do not compute `head` from the number in the answer: more messages may have come since the server counted.
    return (await this.#fetch<{ unread: number }>("room.read", { seq }, `read ${this.name}`)).unread;
  }

  /**
   * Report typing. Call it at every keystroke, with false when the field is empty. While the user types, the client sends
   * a report at the interval that the server sets (`welcome.typing.repeat_ms`, by default 3 s).
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
   * Send a signal, for example the position of a pointer. Signals to a slow receiver wait in the server. There, a
   * newer signal with a `key` replaces a waiting one with the same sender, kind and `key`. Returns whether the signal was
   * sent: false without a connection. With `reply`, returns a promise that fails if the server refuses the signal, or
   * if there is no connection.
   */
  signal(kind: string, body: SignalBody, options: SignalOptions & { reply: true }): Promise<void>;
  signal(kind: string, body?: SignalBody, options?: { key?: string }): boolean;
  signal(kind: string, body?: SignalBody, options?: SignalOptions): boolean | Promise<void> {
    return this.#core.signal({ room: this.name, kind, body }, options);
  }

  // Called by the client

  /** @internal Number of the last delivered message, to resume after it; null if the program has not joined the room. */
  get _cursor(): number | null {
    return this.#wanted ? this.#stream.last : null;
  }

  /** @internal */
  _restore(state: RoomState | undefined): void {
    this.#said = false;
    if (!this.#wanted) return;
    if (state?.truncated) this.#stream._reach(state.head);
    // The server has put the client of a resumed session back into the room. Join nevertheless, because the reply has the
    // typers, the number of users and the number of unread messages.
    this.#enter(!state);
  }

  /** @internal */
  _lost(): void {
    this.joined = this.#said = false;
    this.#stream._restart();
    this.#keystrokes.ended(true);
  }

  /** @internal Reject callers that wait for the join: the client is closed. */
  _stop(error: GreendotError): void {
    this._lost();
    this.#endMute();
    this.#typists.clear();
    this.#answer(error);
  }

  /** @internal Discard the state of the previous user. */
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
    if (!this.#wanted && type !== "room.changed") return; // the server sent this event before it processed the leave
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

  /** Fetch a page of the history. Fails if the connection is lost, and is not repeated on the next connection. */
  async #page(bounds: Bounds): Promise<RoomMessage<Body>[]> {
    return (await this.#core.ask<History<Body>>("room.history", { room: this.name, ...bounds })).messages;
  }

  #plan(): void {
    queueMicrotask(() => {
      // If the room is already joined, `history` needs a second join.
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
    // Fetch what the reply leaves out. With `history`, the reply has only the newest messages. If the client was in the
    // room earlier, messages between the last delivered one and the first one of the reply may be missing.
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

  /** Resolve the `join` calls that wait for the answer, or reject them with `error`. */
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
    // The key is also the trace. The server copies the trace into the event of the message. So this client recognizes its
    // own message, whether the event comes before or after the answer.
    return this.#fetch(type, { ...fields, key, trace: key }, `room ${this.name}`);
  }

  /** Send a command of this room and return its answer, across reconnects. */
  #fetch<Reply>(type: string, fields: object, lane: Lane = Symbol()): Promise<Reply> {
    return this.#core._deliver(lane, type, { room: this.name, ...fields });
  }

  /** Emit an event of the room and of the client. */
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

  /** Set the end of the mute. When the time has come, the mute ends without an event of the server. */
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
