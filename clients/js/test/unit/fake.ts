// A client without a server, that counts what is asked of it.

import type {
  Connection,
  Greendot,
  InboxEntry,
  InboxPage,
  Presence,
  PresentPage,
  Profile,
  Receipt,
  RoomMessage,
  Typing,
  Undo,
  Welcome,
} from "../../src/index.js";

type Call = (event: any) => void;

export class FakeEmitter {
  #listeners: { type: string; call: Call }[] = [];

  get listening(): number {
    return this.#listeners.length;
  }

  on(type: string, call: Call): Undo {
    const entry = { type, call };
    this.#listeners.push(entry);
    return () => {
      this.#listeners = this.#listeners.filter((other) => other !== entry);
    };
  }

  emit(type: string, event?: unknown): void {
    for (const entry of [...this.#listeners]) if (entry.type === type) entry.call(event);
  }
}

/** A promise the test settles. */
export class Later<Value> {
  resolve!: (value: Value) => void;
  reject!: (error: unknown) => void;
  promise = new Promise<Value>((resolve, reject) => Object.assign(this, { resolve, reject }));
}

export class FakeRoom extends FakeEmitter {
  joined = false;
  head = 0;
  unread = 0;
  count: number | null = null;
  typers: Typing;
  archived = false;
  mutedUntil: number | null = null;
  slowModeS = 0;
  /** Joins that were not undone. */
  joins = 0;
  /** The option `history` of each join. */
  pages: (number | undefined)[] = [];
  /** How often the server would have been told. */
  entries = 0;
  records: RoomMessage<any>[] = [];
  asked: { before?: number; after?: number; limit?: number }[] = [];
  users: string[] = [];
  sent: { body: any; key: string; answer: Later<{ id: string; seq: number }> }[] = [];
  typed: boolean[] = [];
  reacted: [number, string, boolean][] = [];
  reads: (number | undefined)[] = [];
  /** Where set, `history` answers with it. */
  next: Later<RoomMessage<any>[]> | null = null;

  constructor(readonly name: string) {
    super();
    this.typers = { room: name, typers: [], count: 0 };
  }

  join({ history }: { history?: number } = {}): Promise<unknown> {
    this.joins += 1;
    this.pages.push(history);
    if (this.joins === 1 || history !== undefined) this.entries += 1;
    return new Promise(() => {});
  }

  leave(): void {
    if (!this.joins) throw new Error("left more often than joined");
    this.joins -= 1;
    if (!this.joins) this.joined = false;
  }

  /** The server lets us in. */
  enter(users: string[] = [], messages: RoomMessage<any>[] = []): void {
    this.joined = true;
    this.users = users;
    this.count = users.length;
    this.head = this.records.at(-1)?.seq ?? 0;
    this.emit("joined", { room: this.name, messages });
  }

  putOut(why: string): void {
    this.joins = 0;
    this.joined = false;
    this.emit("removed", why);
  }

  tell(message: RoomMessage<any>): void {
    this.head = message.seq;
    this.records.push(message);
    this.emit("message", message);
  }

  types(...users: string[]): void {
    this.typers = { room: this.name, typers: users.map((user) => ({ user, name: null })), count: users.length };
    this.emit("typing", this.typers);
  }

  counts(count: number): void {
    this.count = count;
    this.emit("count", count);
  }

  history(bounds: { before?: number; limit?: number } = {}): Promise<RoomMessage<any>[]> {
    this.asked.push(bounds);
    const { before = Infinity, limit = 50 } = bounds;
    if (this.next) return this.next.promise;
    return Promise.resolve(this.records.filter(({ seq }) => seq < before).slice(-limit));
  }

  /** Where set, `receipts` answers with it. */
  page: Later<{ receipts: Receipt[] }> | null = null;
  readBy: Receipt[] = [];

  receipts(): Promise<{ receipts: Receipt[] }> {
    return this.page?.promise ?? Promise.resolve({ receipts: this.readBy });
  }

  profiles: Record<string, Profile> = {};

  present(): Promise<PresentPage> {
    return Promise.resolve({ users: this.users, count: this.users.length, profiles: this.profiles });
  }

  send(body: unknown, { key }: { key: string }): Promise<{ id: string; seq: number }> {
    const answer = new Later<{ id: string; seq: number }>();
    this.sent.push({ body, key, answer });
    return answer.promise;
  }

  react(ref: number, reaction: string, { on }: { on: boolean }): Promise<{ id: string; seq: number }> {
    this.reacted.push([ref, reaction, on]);
    return Promise.resolve({ id: "", seq: 0 });
  }

  typing(isTyping: boolean): void {
    this.typed.push(isTyping);
  }

  read(seq?: number): Promise<number> {
    this.reads.push(seq);
    return Promise.resolve(0);
  }
}

export class FakePeople {
  watches: { users: string[]; call: Call }[] = [];
  known = new Map<string, Presence>();

  watch(users: string | Iterable<string>, call: Call): Undo {
    const entry = { users: typeof users === "string" ? [users] : [...users], call };
    this.watches.push(entry);
    return () => {
      this.watches = this.watches.filter((other) => other !== entry);
    };
  }

  of(user: string): Presence | undefined {
    return this.known.get(user);
  }

  tell(...entries: Presence[]): void {
    for (const entry of entries) {
      this.known.set(entry.user, entry);
      for (const { users, call } of this.watches) if (users.includes(entry.user)) call(entry);
    }
  }
}

export class FakeInbox extends FakeEmitter {
  unread = 0;
  unseen = 0;
  entries: InboxEntry<any>[] = [];
  asked: object[] = [];
  marks: [string, unknown][] = [];
  next: Later<InboxPage<any>> | null = null;

  page(entries = this.entries): InboxPage<any> {
    return { notifications: entries, head: this.entries.at(-1)?.seq ?? 0, unread: this.unread, unseen: this.unseen };
  }

  list(bounds: { before?: number; limit?: number } = {}): Promise<InboxPage<any>> {
    this.asked.push(bounds);
    const { before = Infinity, limit = 50 } = bounds;
    return this.next?.promise ?? Promise.resolve(this.page(this.entries.filter(({ seq }) => seq < before).slice(-limit)));
  }

  async #mark(name: string, which: unknown): Promise<object> {
    this.marks.push([name, which]);
    return { unread: 0, unseen: 0 };
  }

  seen = (which: unknown) => this.#mark("seen", which);
  read = (which: unknown) => this.#mark("read", which);
  archive = (which: unknown) => this.#mark("archive", which);
  ack = (which: unknown) => this.#mark("ack", which);
}

export class FakeClient extends FakeEmitter {
  connection: Connection = Object.freeze({ state: "idle", reason: null, failures: 0 });
  user: string | null = null;
  presence = new FakePeople();
  inbox = new FakeInbox();
  rooms = new Map<string, FakeRoom>();
  connects = 0;
  closes = 0;
  time = 1_800_000_000_000;

  /** As what it stands for. */
  get it(): Greendot {
    return this as unknown as Greendot;
  }

  get state(): string {
    return this.connection.state;
  }

  /** Everything somebody still wants of it. */
  get held(): number {
    const rooms = [...this.rooms.values()].reduce((sum, room) => sum + room.listening + room.joins, 0);
    return this.listening + this.inbox.listening + this.presence.watches.length + rooms;
  }

  room(name: string): FakeRoom {
    const room = this.rooms.get(name) ?? new FakeRoom(name);
    this.rooms.set(name, room);
    return room;
  }

  become(connection: Partial<Connection>): void {
    this.connection = Object.freeze({ ...this.connection, reason: null, ...connection });
    this.emit("state", this.connection);
  }

  welcomed(user: string): void {
    this.user = user;
    this.emit("welcome", { user } as Welcome);
    this.become({ state: "online" });
  }

  connect(): void {
    this.connects += 1;
  }

  close(): void {
    this.closes += 1;
  }

  now(): number {
    return this.time;
  }
}

export function person(user: string, state: Presence["state"], version = 1, more: Partial<Presence> = {}): Presence {
  return { user, name: null, state, since: null, last_seen: null, version, status_text: null, mode: "live", ...more };
}

export function said(seq: number, body: unknown, more: Partial<RoomMessage> = {}): RoomMessage<any> {
  return { room: "lobby", seq, id: `m${seq}`, user: "bob", name: null, body, at: seq, ref: null, op: null, ...more };
}

export function entry(seq: number, more: Partial<InboxEntry> = {}): InboxEntry<any> {
  const times = { seen_at: null, read_at: null, archived_at: null, acked_at: null };
  return { seq, id: `n${seq}`, kind: "news", body: { n: seq }, created_at: seq, ack: false, ...times, ...more };
}
