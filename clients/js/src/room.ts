// One room: what is said there, who types, who is there; joined again by itself after every return.

import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import { newKey } from "./ids.js";
import type { RoomEvents, Typing, Undo } from "./options.js";
import type { Session } from "./session.js";
import { PAGE, Stream } from "./stream.js";
import { Keystrokes, Typists } from "./typing.js";
import type { Joined, PresentPage, RoomMessage, RoomState, Signal, Typer, Written } from "./wire.js";

const MOST_SENT = 500; // keys remembered

interface JoinReply extends Joined {
  messages: RoomMessage<any>[];
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

/** `client.room(name)` */
export class Room<Body = unknown, SignalBody = unknown> {
  readonly name: string;
  /** The number of the newest message known; 0 before the room is joined. */
  head = 0;
  /** How many are in the room; null before it is joined. */
  count: number | null = null;
  /** Whether the server has let us in, on this connection. */
  joined = false;
  #core: Session;
  #events: Emitter<RoomEvents<Body, SignalBody>>;
  #stream: Stream<RoomMessage<Body>>;
  #typists: Typists;
  #keystrokes: Keystrokes;
  #typing: Typing;
  #wanted = 0; // joins not yet undone
  #after: number | null = null; // where the program wants to begin
  #said = false; // as far as the server was told, we are in
  #entry = 0; // the number of the last join sent; the answer to an older one is not ours any more
  #waiters: ((error?: GreendotError) => void)[] = []; // for the join
  #marker = 0; // read up to here
  #sent = new Set<string>(); // keys of messages that may come back

  /** @internal */
  constructor(core: Session, name: string) {
    this.name = name;
    this.#core = core;
    this.#events = new Emitter(core.threw);
    this.#typing = { room: name, typers: [], count: 0 };
    this.#typists = new Typists(core.clock, () => this.#typingChanged());
    this.#keystrokes = new Keystrokes(core.clock, (type) => this.joined && core.tell(type, { room: name }), () => core.typing);
    this.#stream = new Stream({
      head: async () => (await this.#page({ limit: 1 })).at(-1)?.seq ?? 0,
      page: (after) => this.#page({ after, limit: PAGE }),
      tell: (message) => this.#tell(message),
      gap: (gap) => {
        this.#advance(gap.head);
        this.#events.emit("resync", gap);
      },
      failed: (error) => core.failed(error),
      moved: () => core.cursors.moveRoom(name, this.#stream.last),
    });
  }

  /** How many messages are unread. */
  get unread(): number {
    return Math.max(0, this.head - this.#marker);
  }

  /** Who types: the same object until that changes. */
  get typers(): Typing {
    return this.#typing;
  }

  on<Type extends keyof RoomEvents>(type: Type, listener: (event: RoomEvents<Body, SignalBody>[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Be in this room, now and after every return; waits for a connection. Messages after number `after` are told first;
   * without it those after the cursor that was kept, else only what is new.
   * Counted: the room is left when each `join` was followed by a `leave`.
   */
  join({ after }: { after?: number } = {}): Promise<Joined> {
    this.#wanted += 1;
    if (after !== undefined && this.#stream.last === null) this.#after = after;
    if (this.joined) return Promise.resolve(this.#standing());
    const promise = new Promise<Joined>((resolve, reject) => {
      this.#waiters.push((error) => (error ? reject(error) : resolve(this.#standing())));
    });
    promise.catch(() => {}); // whoever does not wait for it hears of it as `removed`
    this.#plan();
    return promise;
  }

  leave(): void {
    if (!this.#wanted || --this.#wanted) return;
    this.#outside(new GreendotError("closed", "left"));
    this.#plan();
  }

  /**
   * Write a message; resolves when the server has it. Without a connection it waits, in its order. It has a key, made
   * here unless given: however often it is sent, it is written once.
   */
  send(body: Body, options?: { key?: string }): Promise<Written> {
    this.#keystrokes.ended(); // a message ends the typing
    return this.#write("room.send", { body }, options);
  }

  /** Give the message with number `ref` another body. */
  edit(ref: number, body: Body, options?: { key?: string }): Promise<Written> {
    return this.#write("room.edit", { ref, body }, options);
  }

  /** Take the message with number `ref` back. */
  delete(ref: number, options?: { key?: string }): Promise<Written> {
    return this.#write("room.delete", { ref }, options);
  }

  /** Messages in ascending order, bounds excluded: the oldest after `after`, else the newest (before `before`). */
  async history(bounds: Bounds = {}): Promise<RoomMessage<Body>[]> {
    return (await this.#core.deliver<History<Body>>(Symbol(), "room.history", { room: this.name, ...bounds })).messages;
  }

  /** The person has read up to number `seq`, or all there is; how many are left. Waits for a connection. */
  async read(seq = this.head): Promise<number> {
    this.#readUpTo(seq);
    // What the answer counts is not held against `head`: messages may have come since the server counted.
    const lane = `read ${this.name}`;
    return (await this.#core.deliver<{ unread: number }>(lane, "room.read", { room: this.name, seq })).unread;
  }

  /** Call it at every keystroke, with false when the field is empty again: it says what is to be said, every 3 s. */
  typing(isTyping = true): void {
    this.#keystrokes.typing(isTyping);
  }

  /** A page of who is in the room, by id. */
  present(page: { after?: string; limit?: number } = {}): Promise<PresentPage> {
    return this.#core.deliver(Symbol(), "room.present", { room: this.name, ...page });
  }

  /** Say something fleeting, like where a cursor is. With `key` only the latest counts. Whether it was said. */
  signal(kind: string, body?: SignalBody, { key }: { key?: string } = {}): boolean {
    return this.#core.tell("signal.send", { room: this.name, kind, body, key });
  }

  // What the client calls

  /** @internal What to resume from: null where nothing is followed. */
  get cursor(): number | null {
    return this.#wanted ? this.#stream.last : null;
  }

  /** @internal */
  restore(state: RoomState | undefined): void {
    this.#said = false;
    if (!this.#wanted) return;
    if (state?.truncated) this.#stream.reach(state.head);
    // One that was resumed is joined already. Asked once more, it says who types, how many are there and what is unread.
    this.#enter(!state);
  }

  /** @internal */
  lost(): void {
    this.joined = this.#said = false;
    this.#stream.restart();
    this.#keystrokes.ended(true);
  }

  /** @internal The client is closed: nobody will be let in. */
  stop(error: GreendotError): void {
    this.lost();
    this.#typists.clear();
    this.#answer(error);
  }

  /** @internal Another user is signed in. */
  forget(): void {
    this.#stream.forget();
    this.head = this.#marker = 0;
  }

  /** @internal */
  missed(): void {
    this.#stream.miss();
  }

  /** @internal */
  heard(type: string, data: any, trace: string | undefined): void {
    if (!this.#wanted && type !== "room.changed") return; // on its way when the room was left
    switch (type) {
      case "room.message":
        if (trace && this.#sent.delete(trace)) data.key = trace;
        return this.#stream.offer(data);
      case "typing.started":
        return this.#typists.started(data, data.expires_in_ms);
      case "typing.stopped":
        return this.#typists.stopped(data.user);
      case "typing.count":
        return this.#typists.counted(data.count, data.expires_in_ms);
      case "room.entered":
        this.#counted((this.count ?? 0) + 1);
        return this.#events.emit("entered", { user: data.user });
      case "room.left":
        this.#counted(Math.max((this.count ?? 0) - 1, 0));
        return this.#events.emit("left", { user: data.user });
      case "room.count":
        return this.#counted(data.count);
      case "signal":
        return this.#events.emit("signal", data as Signal<SignalBody>);
      case "room.changed":
        if (data.removed) this.#removed(data.reason ?? null);
        else if (data.read !== undefined) this.#readUpTo(data.read);
    }
  }

  /** A page of the history, on this connection or not at all. */
  async #page(bounds: Bounds): Promise<RoomMessage<Body>[]> {
    return (await this.#core.ask<History<Body>>("room.history", { room: this.name, ...bounds })).messages;
  }

  #plan(): void {
    queueMicrotask(() => {
      if (!this.#core.online || this.#wanted > 0 === this.#said) return;
      if (this.#wanted) return this.#enter(true);
      this.#said = false;
      this.#core.tell("room.leave", { room: this.name });
    });
  }

  #enter(recovering: boolean): void {
    const entry = ++this.#entry;
    const after = (recovering ? (this.#stream.last ?? this.#after ?? this.#core.cursors.room(this.name)) : null) ?? undefined;
    this.#said = true;
    this.#core
      .ask<JoinReply>("room.join", { room: this.name, after }, (reply) => {
        if (entry === this.#entry && this.#said) this.#entered(reply, after);
      })
      .catch((error: GreendotError) => {
        if (entry !== this.#entry || error.code === "disconnected") return; // the next connection joins again
        this.#said = false;
        const isFirst = this.#waiters.length > 0;
        this.#removed(error.code, error);
        if (!isFirst) this.#core.failed(error);
      });
  }

  #entered(reply: JoinReply, after: number | undefined): void {
    this.joined = true;
    this.#stream.follow(after ?? reply.head);
    this.#after = null;
    this.#marker = Math.max(this.#marker, reply.head - reply.unread);
    // Its words are told before the rest, and moved by: `head` follows them.
    for (const message of reply.messages) this.#stream.offer(message);
    if (reply.truncated) this.#stream.reach(reply.head);
    this.#advance(reply.head);
    this.#typists.clear();
    for (const typer of reply.typing) this.#typists.started(typer, typer.expires_in_ms);
    // In a large room the reply says how many type, not for how long.
    if (reply.typing_count > reply.typing.length) this.#typists.counted(reply.typing_count, this.#core.typing.hold_ms);
    this.#counted(reply.present);
    this.#events.emit("unread", this.unread);
    this.#events.emit("joined", this.#standing());
    this.#answer();
  }

  /** Those who wait for the join are let in, or told why not. */
  #answer(error?: GreendotError): void {
    for (const waiter of this.#waiters.splice(0)) waiter(error);
  }

  #standing(): Joined {
    return { room: this.name, head: this.head, unread: this.unread, present: this.count ?? 0 };
  }

  #removed(why: string | null, error = new GreendotError(why ?? "not_a_member", "no longer in this room")): void {
    this.#wanted = 0;
    this.#said = false;
    this.#outside(error);
    this.#events.emit("removed", why);
  }

  #outside(error: GreendotError): void {
    this.joined = false;
    this.count = null;
    this.#after = null;
    this.#stream.forget();
    this.#typists.clear();
    this.#keystrokes.ended();
    this.#answer(error);
  }

  #write(type: string, fields: object, { key = newKey() }: { key?: string } = {}): Promise<Written> {
    this.#sent.add(key);
    const [oldest] = this.#sent;
    if (this.#sent.size > MOST_SENT) this.#sent.delete(oldest!);
    // The key is the trace, too: with it the message is known for ours when it comes back, before the answer or after.
    return this.#core.deliver(`room ${this.name}`, type, { room: this.name, ...fields, key, trace: key });
  }

  #tell(message: RoomMessage<Body>): void {
    this.#typists.stopped(message.user);
    this.#advance(Math.max(this.head, message.seq)); // one that was fetched late is not the newest
    this.#events.emit("message", message);
    this.#core.events.emit("message", message);
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

  #counted(count: number): void {
    if (count === this.count) return;
    this.count = count;
    this.#events.emit("count", count);
  }

  #typingChanged(): void {
    const { typers, count } = this.#typists;
    this.#typing = { room: this.name, typers, count };
    this.#events.emit("typing", this.#typing);
    this.#core.events.emit("typing", this.#typing);
  }
}
