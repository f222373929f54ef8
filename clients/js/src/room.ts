// Room: its messages, the users in the room, and the users who type.

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

// Types of events that the program can listen to.
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
 * Restrictions for the user, in the event `room.changed` and in the reply to `room.join`. If a field is absent in the event,
 * its value has not changed. If a field is absent in the reply, there is no such restriction.
 */
interface Moderation {
  archived?: boolean;
  /** Shortest time between two messages of one user, in seconds. 0: no slow mode. */
  slow_mode_s?: number;
  /** End of the user's mute, in milliseconds UTC. null: the mute has no end. 0: the user is not muted. */
  muted_until?: number | null;
}

/**
 * Reply to `room.join`. If `truncated` is true, messages are missing between the last message that the client has and the
 * messages of the reply. Either more messages are missing than fit into a reply, or the server has lost messages.
 */
interface JoinReply extends Joined<any>, Moderation {
  truncated: boolean;
  typing: (Typer & { expires_in_ms: number })[];
  typing_count: number;
}

/** Arguments of `history`. */
interface Bounds {
  before?: number;
  after?: number;
  limit?: number;
}

interface History<Body> {
  messages: RoomMessage<Body>[];
}

/**
 * A room, from `client.room(name)`.
 *
 * Each message of a room has a number, its `seq`. A later message has a higher `seq`. Edits, deletions and reactions are
 * messages, too: each has its own `seq`, and its field `ref` is the `seq` of the message that it changes. The read marker of a
 * user is the `seq` up to which the user has read the room, on any device.
 */
export class Room<Body = unknown, SignalBody = unknown> {
  readonly name: string;
  /** `seq` of the newest known message. 0 before the first join, after a removal, and after another user has signed in. */
  head = 0;
  /** Number of users in the room. null before the first join, and after a leave or a removal. */
  count: number | null = null;
  /** Whether the client is in the room now: the server has accepted the join on the current connection. */
  joined = false;
  /** Whether the app has archived the room. Users can read an archived room, but not change it. */
  archived = false;
  /**
   * End of the user's mute, in milliseconds UTC. If the mute has no end, the value is Infinity. If the user is not muted, the
   * value is null. It is also null before the first join, and after a leave, a removal or a close of the client. A lost
   * connection does not change the value.
   */
  mutedUntil: number | null = null;
  /** Shortest time between two messages of one user, in seconds. 0: no slow mode. */
  slowModeS = 0;
  #session: Session;
  #events: Emitter<RoomEvents<Body, SignalBody>>;
  #stream: Stream<RoomMessage<Body>>; // delivers each message once and in order, and fetches missing messages
  #typists: Typists; // users who type in the room
  #keystrokes: Keystrokes; // typing reports of this client
  #typing: Typing; // value of `typers`
  #joins = 0; // calls of `join` minus calls of `leave`; 0 after a removal
  #joinAfter: number | null = null; // option `after` for the next command `room.join`
  #joinHistory: number | undefined; // option `history` for the next command `room.join`
  #joinSent = false; // whether the client has sent `room.join` on this connection, and has not left the room since
  #lastJoin = 0; // number of the last command `room.join`; the client ignores answers to older ones
  #waiters: ((error?: GreendotError, joined?: Joined<Body>) => void)[] = []; // calls of `join` that wait for the answer
  #readMarker = 0;
  #stopMuteTimer: Undo = () => {}; // cancels the timer that ends the mute
  #ownKeys = new Set<string>(); // keys of the messages that this client has sent, to recognize their events

  /** @internal */
  constructor(session: Session, name: string) {
    this.name = name;
    this.#session = session;
    this.#events = new Emitter<RoomEvents<Body, SignalBody>>(session._threw, EVENTS);
    this.#typing = { room: name, typers: [], count: 0 };
    this.#typists = new Typists(session._clock, () => this.#typingChanged());
    this.#keystrokes = new Keystrokes(session._clock, (type) => this.joined && session._trySend(type, { room: name }), () => session.typing);
    this.#stream = new Stream({
      // Fetch the `seq` of the newest message.
      head: async () => (await this.#fetchPage({ limit: 1 })).at(-1)?.seq ?? 0,
      page: (after) => this.#fetchPage({ after, limit: PAGE }),
      _deliver: (message) => this.#deliver(message),
      // If too many messages are missing, or if the server has lost messages, the stream skips to the newest message.
      gap: (gap) => {
        this.#moveHead(gap.head);
        this.#events.emit("resync", gap);
      },
      _failed: session._failed,
      // Store the `seq` of the last delivered message.
      _moved: () => session._cursors._moveRoom(name, this.#stream.last),
    });
  }

  /** Number of unread messages, including edits, deletions and reactions. */
  get unread(): number {
    return Math.max(0, this.head - this.#readMarker);
  }

  /** Users who type, and their number. After each change, the value is a new object. */
  get typers(): Typing {
    return this.#typing;
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
  on<Type extends keyof RoomEvents>(type: Type, listener: (event: RoomEvents<Body, SignalBody>[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Join the room, now and after every reconnect. Without a connection, the call waits for a connection. After the join, the
   * room emits the event `message` for each new message. Several components of a program may join the same room: see `leave`.
   *
   * The options select older messages. A call with both options throws an error.
   *
   * - With `after`, the room first emits the messages with a higher `seq` than `after`. If the client has joined the room
   *   already, `after` has no effect.
   * - With `history`, the result contains this number of newest messages, at most 100 and 1 MiB. The room emits all later messages.
   * - With neither option, the room first emits the messages after the last message that it has emitted. The client keeps the
   *   `seq` of this message in its `storage` (by default in memory), until a leave or a removal. If the storage has no such
   *   `seq`, the room emits only new messages.
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
    promise.catch(() => {}); // the program may ignore the promise: the event `removed` reports a refusal, too
    // Several calls in one turn of the event loop send one command, at the end of the turn. If the client is already in the
    // room, it joins again only to get the messages of the option `history`.
    queueMicrotask(() => {
      const isAgain = this.joined && this.#joinHistory !== undefined;
      if (this.#session.online && this.#joins && (!this.#joinSent || isAgain)) this.#sendJoin(true);
    });
    return promise;
  }

  /**
   * Undo one call of `join`. After as many calls of `leave` as of `join`, the client leaves the room. The event `removed`
   * undoes all calls of `join` before the event: do not call `leave` for these calls.
   */
  leave(): void {
    if (!this.#joins || --this.#joins) return;
    const mustLeave = this.#joinSent;
    this.#joinSent = false;
    this.#left(new GreendotError("closed", "room left"));
    // If the program calls `join` again in this turn of the event loop, the client stays in the room and sends no
    // `room.leave`.
    queueMicrotask(() => mustLeave && !this.#joins && this.#session._trySend("room.leave", { room: this.name }));
  }

  /**
   * Send a message. The promise resolves when the server has stored the message. Without a connection, the message waits for
   * a connection. The client sends messages in the order of the calls.
   *
   * If the connection is lost before the answer, the client sends the message again, with the same `key`. The server stores
   * only one message with this key. By default, the client generates a new key for each call.
   */
  send(body: Body, options?: { key?: string }): Promise<Written> {
    this.#keystrokes.ended();
    return this.#write("room.send", { body }, options);
  }

  /** Replace the body of the message whose `seq` is `ref`. For `key`, see `send`. */
  edit(ref: number, body: Body, options?: { key?: string }): Promise<Written> {
    return this.#write("room.edit", { ref, body }, options);
  }

  /**
   * Delete the message whose `seq` is `ref`. Clients no longer show the message, but its content stays in the server's
   * database. To erase the content, let your backend delete the message, too. For `key`, see `send`.
   */
  delete(ref: number, options?: { key?: string }): Promise<Written> {
    return this.#write("room.delete", { ref }, options);
  }

  /**
   * Add a reaction of the user to the message whose `seq` is `ref`. With `on: false`, remove the reaction. A second call with
   * the same arguments has no effect. For `key`, see `send`.
   */
  react(ref: number, reaction: string, { on = true, key }: { on?: boolean; key?: string } = {}): Promise<Written> {
    return this.#write("room.react", { ref, reaction, on }, { key });
  }

  /**
   * Fetch a page of at most `limit` messages, in ascending order:
   *
   * - With `after`, the page has the next messages after this `seq`.
   * - With `before`, the page has the last messages before this `seq`.
   * - Without `after` and `before`, the page has the newest messages.
   *
   * A call with both `after` and `before` fails.
   */
  async history(bounds: Bounds = {}): Promise<RoomMessage<Body>[]> {
    return (await this.#request<History<Body>>("room.history", bounds)).messages;
  }

  /**
   * Mark the messages up to `seq` as read; by default all messages. Without a connection, the call waits for a connection.
   * Returns the number of messages that are still unread.
   */
  async read(seq = this.head): Promise<number> {
    this.#moveReadMarker(seq);
    return (await this.#request<{ unread: number }>("room.read", { seq }, `read ${this.name}`)).unread;
  }

  /**
   * Report that the user types. Call `typing()` at every keystroke. The client limits the number of reports: by default, it
   * sends one report in 3 s (`welcome.typing.repeat_ms`). Some seconds after the last call, the typing ends by itself. To end
   * the typing at once, for example when the field is empty, call `typing(false)`.
   */
  typing(isTyping = true): void {
    this.#keystrokes.typing(isTyping);
  }

  /**
   * Fetch a page of the users in the room, ordered by id, with their names and info. For the next page, pass the last id as
   * `after`.
   */
  present(page: { after?: string; limit?: number } = {}): Promise<PresentPage> {
    return this.#request("room.present", page);
  }

  /**
   * Fetch a page of read receipts, ordered by user id. A receipt has the `seq` up to which a user has read. For the next page,
   * pass `next` of the result as `after`. With `seq`, fetch only the number of users who have read this message.
   *
   * If the app has not turned on read receipts for the room, each call fails. If the room has more than 100 members, or if
   * more than 100 users are in the room, only calls with `seq` work: other calls fail with `too_many`. The operator can change
   * this limit (`rooms.receipts_members`).
   */
  receipts(page: { seq: number }): Promise<ReaderCount>;
  receipts(page?: { after?: string; limit?: number }): Promise<ReceiptPage>;
  receipts(page = {}): Promise<any> {
    return this.#request("room.receipts", page);
  }

  /**
   * Send a signal to the users in the room, for example the position of a pointer. The server does not store signals. If a
   * client receives slowly, the signals for this client wait in the server. A new signal then replaces a waiting signal with the
   * same sender, kind and `key`. Signals without a `key` do not replace each other.
   *
   * Without a connection, the client drops the signal. The result is true if the client has sent the signal. With
   * `reply: true`, the result is a promise: it fails if the server refuses the signal, or if there is no connection.
   */
  signal(kind: string, body: SignalBody, options: SignalOptions & { reply: true }): Promise<void>;
  signal(kind: string, body?: SignalBody, options?: { key?: string }): boolean;
  signal(kind: string, body?: SignalBody, options?: SignalOptions): boolean | Promise<void> {
    return this.#session.signal({ room: this.name, kind, body }, options);
  }

  // Members that the client uses

  /**
   * @internal `seq` of the last delivered message. null if the program has not joined the room. On a new connection, the
   * server continues with the next message.
   */
  get _cursor(): number | null {
    return this.#joins ? this.#stream.last : null;
  }

  /**
   * @internal Join again on a new connection. The server joins the client to the rooms that the command `hello` names. The
   * event `welcome` has the states of these rooms: `state` is the state of this room, or undefined.
   */
  _restore(state: RoomState | undefined): void {
    this.#joinSent = false;
    if (!this.#joins) return;
    if (state?.truncated) this.#stream._reach(state.head);
    // With `state`, the client is in the room. It still sends `room.join`, because only the reply has the users who type,
    // the number of users in the room, and the number of unread messages.
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

  /** @internal After a removal or a change of the user: forget the last delivered message, the read marker and `head`. */
  _forget(): void {
    this.#stream._forget();
    this.#readMarker = 0;
    this.#moveHead(0);
  }

  /**
   * @internal Fetch missing messages. The server's events `resync` and `refresh` report that the server has not sent all
   * messages. (The room's own event `resync` has another meaning.)
   */
  _missed(): void {
    this.#stream._miss();
  }

  /** @internal Process an event of the server. */
  _received(type: string, data: any, trace: string | undefined): void {
    // After a call of `leave`, events of the room may still arrive, until the server has processed `room.leave`.
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

  /** Fetch a page of messages. If the connection is lost, the call fails. */
  async #fetchPage(bounds: Bounds): Promise<RoomMessage<Body>[]> {
    return (await this.#session.ask<History<Body>>("room.history", { room: this.name, ...bounds })).messages;
  }

  /** Send `room.join`. If `recovering` is true and no `history` is requested, request the messages after the last delivered one. */
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
        const isReported = this.#waiters.length > 0; // calls of `join` that wait fail with the error
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
    // Fetch messages that the reply does not contain. With `history`, these are messages between the last delivered message
    // and the first message of the reply.
    if (reply.truncated || hasHistory) this.#stream._reach(reply.head);
    this.#moveHead(reply.head);
    this.#typists.clear();
    for (const typer of reply.typing) this.#typists._started(typer, typer.expires_in_ms);
    // In a large room, the reply has only the number of users who type, and not the times at which their typing ends.
    if (reply.typing_count > reply.typing.length) this.#typists._counted(reply.typing_count, this.#session.typing.hold_ms);
    this.#setCount(reply.present);
    this.#applyModeration({ archived: false, slow_mode_s: 0, muted_until: 0, ...reply });
    this.#events.emit("unread", this.unread);
    const joined = this.#state(hasHistory ? reply.messages : []);
    this.#events.emit("joined", joined);
    this.#settleJoins(undefined, joined);
  }

  /** Resolve the promises of the calls of `join` that wait for the answer. With `error`, reject these promises. */
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
    this._forget(); // if the app deletes the room and creates it again, `seq` starts at 1
    this.#events.emit("removed", why);
  }

  /**
   * After a leave or a removal, reset the fields whose values are no longer known. Calls of `join` that wait for an answer
   * fail with `error`.
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
    // The server copies the field `trace` into the event of the message. So the client recognizes the event of its own
    // message, even if the event comes before the answer.
    return this.#request(type, { ...fields, key, trace: key }, `room ${this.name}`);
  }

  /**
   * Send a command of this room, and return the data of the answer. Without a connection, the command waits for the next
   * connection. Commands with the same `lane` are sent one by one. By default, a command waits for no other command.
   */
  #request<Reply>(type: string, fields: object, lane: Lane = Symbol()): Promise<Reply> {
    return this.#session._queue(lane, type, { room: this.name, ...fields });
  }

  /** Emit an event on the room and on the client. */
  #emit(type: "message" | "typing", event: any): void {
    this.#events.emit(type, event);
    this.#session._events.emit(type, event);
  }

  #deliver(message: RoomMessage<Body>): void {
    if (message.ref === null) this.#typists._stopped(message.user); // a new message, not an edit, deletion or reaction
    this.#moveHead(Math.max(this.head, message.seq)); // a message that was missing may be older than `head`
    this.#emit("message", message);
  }

  #moveHead(head: number): void {
    if (head === this.head) return;
    this.head = head;
    this.#events.emit("unread", this.unread);
  }

  /** Move the read marker to `seq`, unless it is already there or beyond. */
  #moveReadMarker(seq: number): void {
    if (seq <= this.#readMarker) return;
    this.#readMarker = seq;
    this.#events.emit("unread", this.unread);
  }

  /** Apply restrictions for the user. If a field is absent, its value does not change. */
  #applyModeration({ archived = this.archived, slow_mode_s = this.slowModeS, muted_until }: Moderation): void {
    if (archived !== this.archived) this.#events.emit("archived", (this.archived = archived));
    if (slow_mode_s !== this.slowModeS) this.#events.emit("slow_mode", (this.slowModeS = slow_mode_s));
    if (muted_until !== undefined) this.#setMute(muted_until ?? Infinity);
  }

  /**
   * Set the end of the mute. If this time is in the past, the user is not muted. The server sends no event at the end of a
   * mute, so a timer ends the mute.
   */
  #setMute(end: number): void {
    this.#stopMuteTimer();
    const left = end - this.#session.now();
    if (left > 0 && left < Infinity) this.#stopMuteTimer = this.#session._clock.after(left, () => this.#setMute(end));
    const until = left > 0 ? end : null;
    if (until !== this.mutedUntil) this.#events.emit("muted", (this.mutedUntil = until));
  }

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
