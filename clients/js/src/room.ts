// Room: its messages, the users in the room, and the users who type. The client joins the room again after a reconnect.

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

// Types of events that a program may listen to.
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

/**
 * Fields of the event `room.changed` and of the reply to `room.join` that restrict the user. In the event, an absent field has
 * not changed. In the reply, an absent field means: not archived, no slow mode, or not muted.
 */
interface Moderation {
  archived?: boolean;
  /** In slow mode, the least number of seconds between two messages of one user. 0: no slow mode. */
  slow_mode_s?: number;
  /** End of the user's mute. null: no end. 0: the user is not muted. */
  muted_until?: number | null;
}

/** Reply to `room.join`. `truncated`: the server did not send all missed messages. */
interface JoinReply extends Joined<any>, Moderation {
  truncated: boolean;
  typing: (Typer & { expires_in_ms: number })[];
  typing_count: number;
}

/** Range of a page of the history. */
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
  /** Number of the newest known message. 0 before the first join, after a removal, and after a change of user. */
  head = 0;
  /** Number of users in the room. null before the first join, and after a leave or a removal. */
  count: number | null = null;
  /** Whether the client is in the room now: the server has accepted the join on the current connection. */
  joined = false;
  /** Whether the app has archived the room. An archived room is read-only. */
  archived = false;
  /**
   * End of the user's mute, in milliseconds UTC. Infinity: no end. null: the user is not muted, or the mute is not known. The
   * mute is not known before the first join, and after a leave, a removal or a close. A lost connection does not change the
   * value.
   */
  mutedUntil: number | null = null;
  /** In slow mode, the least number of seconds between two messages of one user. 0: no slow mode. */
  slowModeS = 0;
  #session: Session;
  #events: Emitter<RoomEvents<Body, SignalBody>>;
  #stream: Stream<RoomMessage<Body>>; // delivers each message once and in order, and fetches missing messages
  #typists: Typists; // users who type in the room
  #keystrokes: Keystrokes; // typing reports of this client
  #typing: Typing; // value of `typers`
  #joins = 0; // number of `join` calls minus number of `leave` calls; 0 after a removal
  #joinAfter: number | null = null; // option `after` for the next command `room.join`
  #joinHistory: number | undefined; // option `history` for the next command `room.join`
  #joinSent = false; // whether `room.join` was sent on this connection, and the client has not left the room since
  #lastJoin = 0; // counts the `room.join` commands; the client ignores answers to all but the last one
  #waiters: ((error?: GreendotError, joined?: Joined<Body>) => void)[] = []; // `join` calls that wait for the answer
  #readMarker = 0; // number of the last message that the user has read, on any device
  #stopMuteTimer: Undo = () => {}; // cancels the timer that ends the mute
  #ownKeys = new Set<string>(); // keys of messages of this client, to recognize the events of these messages

  /** @internal */
  constructor(session: Session, name: string) {
    this.name = name;
    this.#session = session;
    this.#events = new Emitter<RoomEvents<Body, SignalBody>>(session._threw, EVENTS);
    this.#typing = { room: name, typers: [], count: 0 };
    this.#typists = new Typists(session._clock, () => this.#typingChanged());
    this.#keystrokes = new Keystrokes(session._clock, (type) => this.joined && session._trySend(type, { room: name }), () => session.typing);
    this.#stream = new Stream({
      // Number of the newest message.
      head: async () => (await this.#fetchPage({ limit: 1 })).at(-1)?.seq ?? 0,
      page: (after) => this.#fetchPage({ after, limit: PAGE }),
      _deliver: (message) => this.#deliver(message),
      // The stream skips messages: too many are missing, or the server has lost some.
      gap: (gap) => {
        this.#moveHead(gap.head);
        this.#events.emit("resync", gap);
      },
      _failed: session._failed,
      // Store the number of the last delivered message.
      _moved: () => session._cursors._moveRoom(name, this.#stream.last),
    });
  }

  /** Number of unread messages. Edits, deletions and reactions count as messages. */
  get unread(): number {
    return Math.max(0, this.head - this.#readMarker);
  }

  /** Users who type, and the number of these users. The returned object is a new object after each change. */
  get typers(): Typing {
    return this.#typing;
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
  on<Type extends keyof RoomEvents>(type: Type, listener: (event: RoomEvents<Body, SignalBody>[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Join this room, now and after every reconnect. Without a connection, the call waits for a connection. After the join,
   * each new message is an event `message`. Several components of a program may join the same room: see `leave`.
   *
   * `after` is the number of a message: with `after`, the messages after this number are events, too. If the client is
   * already in the room, `after` has no effect. Without `after`, the room continues after the last delivered message. The
   * client's `storage` (by default in memory) holds the number of this message. A leave or a removal discards the number. If
   * the storage has no number, only new messages are events.
   *
   * With `history`, the result contains this number of newest messages, at most 100. All later messages are events. A call
   * with both `after` and `history` throws an error.
   */
  join({ after, history }: { after?: number; history?: number } = {}): Promise<Joined<Body>> {
    if (after !== undefined && history !== undefined) throw new GreendotError("bad_field", "give `after` or `history`, not both");
    this.#joins += 1;
    if (after !== undefined && this.#stream.last === null) this.#joinAfter = after;
    if (history !== undefined) this.#joinHistory = Math.max(history, this.#joinHistory ?? 0);
    else if (this.joined) return Promise.resolve(this.#state());
    const promise = new Promise<Joined<Body>>((resolve, reject) => {
      this.#waiters.push((error, joined) => (error ? reject(error) : resolve(joined!)));
    });
    promise.catch(() => {}); // the caller may ignore the promise, because the event `removed` reports a refusal, too
    // Send the command at the end of this turn of the event loop, so that several calls in one turn send one command. If
    // the client is already in the room, join again only to get the messages of the option `history`.
    queueMicrotask(() => {
      const isAgain = this.joined && this.#joinHistory !== undefined;
      if (this.#session.online && this.#joins && (!this.#joinSent || isAgain)) this.#sendJoin(true);
    });
    return promise;
  }

  /**
   * Undo one call of `join`. The client leaves the room when `leave` was called as often as `join`. The event `removed`
   * undoes all earlier calls of `join`: after this event, call `leave` only for later calls of `join`.
   */
  leave(): void {
    if (!this.#joins || --this.#joins) return;
    const mustLeave = this.#joinSent;
    this.#joinSent = false;
    this.#left(new GreendotError("closed", "room left"));
    // If the program calls `join` again in this turn of the event loop, the client stays in the room: `join` sends another
    // `room.join`, and `leave` sends no `room.leave`.
    queueMicrotask(() => mustLeave && !this.#joins && this.#session._trySend("room.leave", { room: this.name }));
  }

  /**
   * Send a message. The promise resolves when the server has stored the message. Without a connection, messages wait in
   * order. If the connection is lost before the answer, the client sends the message again, with the same `key`. The server
   * stores only one message with this key. By default, the client generates a new key for each call.
   */
  send(body: Body, options?: { key?: string }): Promise<Written> {
    this.#keystrokes.ended();
    return this.#write("room.send", { body }, options);
  }

  /** Replace the body of the message with number `ref`. For `key`, see `send`. */
  edit(ref: number, body: Body, options?: { key?: string }): Promise<Written> {
    return this.#write("room.edit", { ref, body }, options);
  }

  /**
   * Delete the message with number `ref`: clients no longer show the message. The content of the message stays in the
   * server's database until your backend deletes the message, too. For `key`, see `send`.
   */
  delete(ref: number, options?: { key?: string }): Promise<Written> {
    return this.#write("room.delete", { ref }, options);
  }

  /**
   * Add a reaction of this user to the message with number `ref`. With `on: false`, remove the reaction. A second call with
   * the same arguments has no effect. For `key`, see `send`.
   */
  react(ref: number, reaction: string, { on = true, key }: { on?: boolean; key?: string } = {}): Promise<Written> {
    return this.#write("room.react", { ref, reaction, on }, { key });
  }

  /**
   * Fetch a page of at most `limit` messages, in ascending order:
   *
   * - With `after`, the page starts directly after this number.
   * - With `before`, the page ends directly before this number.
   * - Without `after` and `before`, the page has the newest messages.
   *
   * A call with both `after` and `before` fails.
   */
  async history(bounds: Bounds = {}): Promise<RoomMessage<Body>[]> {
    return (await this.#request<History<Body>>("room.history", bounds)).messages;
  }

  /**
   * Mark the messages up to number `seq` as read; by default all messages. Without a connection, the call waits for a
   * connection. Returns the number of messages that are still unread.
   */
  async read(seq = this.head): Promise<number> {
    this.#moveReadMarker(seq);
    // Do not compute `head` as `seq + unread`: this client may have received messages after the server counted `unread`.
    return (await this.#request<{ unread: number }>("room.read", { seq }, `read ${this.name}`)).unread;
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
    return this.#request("room.present", page);
  }

  /**
   * Fetch a page of read receipts, ordered by user id. With `seq`, fetch only the number of users who have read the message
   * with this number. If the room has more than 100 members, or more than 100 users are in the room, a call without `seq`
   * fails with `too_many`. The operator can change this limit (`rooms.receipts_members`). A call also fails if the app has not
   * turned on read receipts for the room.
   */
  receipts(page: { seq: number }): Promise<ReaderCount>;
  receipts(page?: { after?: string; limit?: number }): Promise<ReceiptPage>;
  receipts(page = {}): Promise<any> {
    return this.#request("room.receipts", page);
  }

  /**
   * Send a signal to the users in the room, for example the position of a pointer. A signal is not stored. If a receiver
   * reads slowly, signals for this receiver wait in the server. A newer signal then replaces a waiting signal that has
   * the same sender, kind and `key`. Signals without a `key` do not replace each other.
   *
   * Without a connection, the signal is dropped. The result is true if the client has sent the signal. With `reply: true`,
   * the result is a promise. This promise fails if the server refuses the signal, or if there is no connection.
   */
  signal(kind: string, body: SignalBody, options: SignalOptions & { reply: true }): Promise<void>;
  signal(kind: string, body?: SignalBody, options?: { key?: string }): boolean;
  signal(kind: string, body?: SignalBody, options?: SignalOptions): boolean | Promise<void> {
    return this.#session.signal({ room: this.name, kind, body }, options);
  }

  // Members that the client uses

  /**
   * @internal Number of the last delivered message. null if the program has not joined the room. At a reconnect, the client
   * sends this number, and the server continues with the next message.
   */
  get _cursor(): number | null {
    return this.#joins ? this.#stream.last : null;
  }

  /**
   * @internal Join again on a new connection. The command `hello` names the rooms to resume. If the server has already
   * rejoined this room on the new connection, `state` is the entry of the room in the event `welcome`.
   */
  _restore(state: RoomState | undefined): void {
    this.#joinSent = false;
    if (!this.#joins) return;
    if (state?.truncated) this.#stream._reach(state.head);
    // Send `room.join` even if the server has already rejoined the room. The reply has data that `welcome` lacks: the users
    // who type, the number of users in the room, and the number of unread messages.
    this.#sendJoin(!state);
  }

  /** @internal Process the loss of the connection. */
  _lost(): void {
    this.joined = this.#joinSent = false;
    this.#stream._restart();
    this.#keystrokes.ended(true);
  }

  /** @internal Process the close of the client. Calls of `join` that wait for an answer fail with `error`. */
  _stop(error: GreendotError): void {
    this._lost();
    this.#setMute(0);
    this.#typists.clear();
    this.#settleJoins(error);
  }

  /** @internal Discard the numbers of delivered and read messages, after a removal, or because another user has signed in. */
  _forget(): void {
    this.#stream._forget();
    this.#readMarker = 0;
    this.#moveHead(0);
  }

  /** @internal Fetch the messages that the server has not sent on this connection, after its event `resync` or `refresh`. */
  _missed(): void {
    this.#stream._miss();
  }

  /** @internal Process an event of the server. */
  _received(type: string, data: any, trace: string | undefined): void {
    // After a `leave`, events may arrive that the server sent before it processed the command `room.leave`.
    if (!this.#joins && type !== "room.changed") return;
    switch (type) {
      case "room.message":
        if (trace && this.#ownKeys.delete(trace)) data.key = trace;
        return this.#stream._offer(data);
      case "typing.started":
        return this.#typists._started(data, data.expires_in_ms);
      case "typing.stopped":
        return this.#typists._stopped(data.user);
      case "typing.count":
        return this.#typists._counted(data.count, data.expires_in_ms);
      case "room.entered":
      case "room.left":
        this.#setCount(Math.max((this.count ?? 0) + (type === "room.left" ? -1 : 1), 0));
      // falls through
      case "room.profile":
      case "room.receipt":
      case "room.receipt_count":
        return this.#events.emit(type.slice(5) as "profile", data);
      case "room.count":
        return this.#setCount(data.count);
      case "signal":
        return this.#events.emit("signal", data as Signal<SignalBody>);
      case "room.changed":
        if (data.removed) this.#removed(data.reason ?? "removed");
        else if (data.read !== undefined) this.#moveReadMarker(data.read);
        else this.#applyModeration(data);
    }
  }

  /** Fetch a page of the history. If the connection is lost, the call fails, and the client does not send the command again. */
  async #fetchPage(bounds: Bounds): Promise<RoomMessage<Body>[]> {
    return (await this.#session.ask<History<Body>>("room.history", { room: this.name, ...bounds })).messages;
  }

  /** Send `room.join`. With `recovering`, request the messages after the last delivered message, if `history` is not set. */
  #sendJoin(recovering: boolean): void {
    const number = ++this.#lastJoin;
    const history = this.#joinHistory;
    const isNumbered = recovering && history === undefined;
    const after = (isNumbered ? (this.#stream.last ?? this.#joinAfter ?? this.#session._cursors.room(this.name)) : null) ?? undefined;
    this.#joinSent = true;
    this.#session
      .ask<JoinReply>("room.join", { room: this.name, after, history }, (reply) => {
        if (number === this.#lastJoin && this.#joinSent) this.#entered(reply, after, history !== undefined);
      })
      .catch((error: GreendotError) => {
        if (number !== this.#lastJoin || !this.#joinSent) return;
        if (error.code === "disconnected") return; // the next connection joins again
        const isReported = this.#waiters.length > 0; // by the promises of the `join` calls that wait
        this.#removed(error.code, error);
        if (!isReported) this.#session._failed(error);
      });
  }

  /** Process the reply to `room.join`. */
  #entered(reply: JoinReply, after: number | undefined, hasHistory: boolean): void {
    this.joined = true;
    this.#stream._follow(after ?? reply.head);
    this.#joinAfter = null;
    this.#joinHistory = undefined;
    this.#readMarker = Math.max(this.#readMarker, reply.head - reply.unread);
    for (const message of reply.messages) this.#stream._offer(message);
    // Fetch messages that the reply does not contain. With `history`, the reply has only the newest messages. If the client
    // was in the room earlier, it may lack messages between the last delivered message and the first message of the reply.
    if (reply.truncated || hasHistory) this.#stream._reach(reply.head);
    this.#moveHead(reply.head);
    this.#typists.clear();
    for (const typer of reply.typing) this.#typists._started(typer, typer.expires_in_ms);
    // In a large room, the reply has only the number of users who type, not the time at which each user stops.
    if (reply.typing_count > reply.typing.length) this.#typists._counted(reply.typing_count, this.#session.typing.hold_ms);
    this.#setCount(reply.present);
    this.#applyModeration({ archived: false, slow_mode_s: 0, muted_until: 0, ...reply });
    this.#events.emit("unread", this.unread);
    const joined = this.#state(hasHistory ? reply.messages : []);
    this.#events.emit("joined", joined);
    this.#settleJoins(undefined, joined);
  }

  /** Resolve the promises of the `join` calls that wait for the answer. With `error`, reject these promises. */
  #settleJoins(error?: GreendotError, joined?: Joined<Body>): void {
    for (const waiter of this.#waiters.splice(0)) waiter(error, joined);
  }

  /** Return the state of the room, as the result of `join`. */
  #state(messages: RoomMessage<Body>[] = []): Joined<Body> {
    return { room: this.name, head: this.head, unread: this.unread, present: this.count ?? 0, messages };
  }

  /** Process a removal by the server, or a refusal of the join. */
  #removed(why: string, error = new GreendotError("not_a_member", why)): void {
    this.#joins = 0;
    this.#joinSent = false;
    this.#left(error);
    this._forget(); // in a room that is deleted and created again, the numbers start at 1
    this.#events.emit("removed", why);
  }

  /**
   * Reset the fields whose values are not known after a leave or a removal. Calls of `join` that wait for an answer fail with
   * `error`.
   */
  #left(error: GreendotError): void {
    this.joined = false;
    this.count = null;
    this.#joinAfter = null;
    this.#joinHistory = undefined;
    this.#setMute(0);
    this.#stream._forget();
    this.#typists.clear();
    this.#keystrokes.ended();
    this.#settleJoins(error);
  }

  /** Send a command that writes a message. */
  #write(type: string, fields: object, { key = newKey() }: { key?: string | undefined } = {}): Promise<Written> {
    this.#ownKeys.add(key);
    const [oldest] = this.#ownKeys;
    if (this.#ownKeys.size > MOST_SENT) this.#ownKeys.delete(oldest!);
    // Send the key in the field `trace`, too: the server copies `trace` into the event of the message. So this client
    // recognizes the event of its own message, even if the event comes before the answer.
    return this.#request(type, { ...fields, key, trace: key }, `room ${this.name}`);
  }

  /**
   * Send a command of this room, now or after a reconnect, and return the data of the answer. Commands with the same `lane`
   * are sent in the order of the calls. By default, a command waits for no other command.
   */
  #request<Reply>(type: string, fields: object, lane: Lane = Symbol()): Promise<Reply> {
    return this.#session._queue(lane, type, { room: this.name, ...fields });
  }

  /** Emit an event on the room and on the client. */
  #emit(type: "message" | "typing", event: any): void {
    this.#events.emit(type, event);
    this.#session._events.emit(type, event);
  }

  /** Emit the event `message`. */
  #deliver(message: RoomMessage<Body>): void {
    if (message.ref === null) this.#typists._stopped(message.user); // a new message, not an edit, deletion or reaction
    this.#moveHead(Math.max(this.head, message.seq)); // older messages may be fetched later
    this.#emit("message", message);
  }

  /** Set the number of the newest known message. */
  #moveHead(head: number): void {
    if (head === this.head) return;
    this.head = head;
    this.#events.emit("unread", this.unread);
  }

  /** Record that the user has read the messages up to number `seq`, on any device. */
  #moveReadMarker(seq: number): void {
    if (seq <= this.#readMarker) return;
    this.#readMarker = seq;
    this.#events.emit("unread", this.unread);
  }

  /** Apply the fields that restrict the user. An absent field changes nothing. */
  #applyModeration({ archived = this.archived, slow_mode_s = this.slowModeS, muted_until }: Moderation): void {
    if (archived !== this.archived) this.#events.emit("archived", (this.archived = archived));
    if (slow_mode_s !== this.slowModeS) this.#events.emit("slow_mode", (this.slowModeS = slow_mode_s));
    if (muted_until !== undefined) this.#setMute(muted_until ?? Infinity);
  }

  /**
   * Set the end of the mute. If this time is in the past, the user is not muted. Otherwise, start a timer that ends the mute
   * at this time, because the server sends no event then.
   */
  #setMute(end: number): void {
    this.#stopMuteTimer();
    const left = end - this.#session.now();
    if (left > 0 && left < Infinity) this.#stopMuteTimer = this.#session._clock.after(left, () => this.#setMute(end));
    const until = left > 0 ? end : null;
    if (until !== this.mutedUntil) this.#events.emit("muted", (this.mutedUntil = until));
  }

  /** Set the number of users in the room. */
  #setCount(count: number): void {
    if (count === this.count) return;
    this.count = count;
    this.#events.emit("count", count);
  }

  #typingChanged(): void {
    const { typers, count } = this.#typists;
    this.#emit("typing", (this.#typing = { room: this.name, typers, count }));
  }
}
