// The JavaScript client, @greendot/client 0.1.0, as one module. Built from clients/js: npm run build:web

// src/activity.ts
var ACTIVITY_MS = 15e3;
var Activity = class {
  #clock;
  #say;
  #resting = null;
  #again = false;
  constructor(clock, say) {
    this.#clock = clock;
    this.#say = say;
  }
  active() {
    if (this.#resting) this.#again = true;
    else if (this.#say()) this.#resting = this.#clock.after(ACTIVITY_MS, () => this.#rested());
  }
  /** Reset the throttle, for a new connection or a closed client. */
  reset() {
    this.#resting?.();
    this.#resting = null;
    this.#again = false;
  }
  /** Report activity that came during the pause. Without this report, an active user would soon become idle. */
  #rested() {
    const again = this.#again;
    this.reset();
    if (again) this.active();
  }
};

// src/errors.ts
function because(code, what, cause) {
  return new GreendotError(code, `${what}: ${cause?.message ?? cause}`, true, null, cause);
}
var GreendotError = class extends Error {
  constructor(code, message, retry = false, retryInMs = null, cause) {
    super(message, cause === void 0 ? void 0 : { cause });
    this.code = code;
    this.retry = retry;
    this.retryInMs = retryInMs;
  }
  code;
  retry;
  retryInMs;
  name = "GreendotError";
};

// src/ids.ts
var ID = /^\w[\w.@=+-]{0,127}$/;
function validId(what, id) {
  if (typeof id === "string" && ID.test(id)) return id;
  throw new GreendotError("bad_field", `the ${what} ${JSON.stringify(id)} is not a valid id: it must match ${ID}`);
}
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// src/emitter.ts
var Emitter = class {
  #listeners;
  #failed;
  /** `failed` is called with the error of a listener and with the event type. The keys of `known` are the event types. */
  constructor(failed, known) {
    this.#failed = failed;
    this.#listeners = new Map(Object.keys(known).map((type) => [type, /* @__PURE__ */ new Set()]));
  }
  on(type, call) {
    const entry = { call };
    const listeners = this.#listeners.get(type);
    if (!listeners) throw new GreendotError("bad_field", unknown(String(type), [...this.#listeners.keys()]));
    listeners.add(entry);
    return () => void listeners.delete(entry);
  }
  emit(type, event) {
    const listeners = this.#listeners.get(type);
    for (const entry of [...listeners]) {
      if (listeners.has(entry)) attempt(entry.call, event, (error) => this.#failed(error, type));
    }
  }
};
function unknown(type, known) {
  const pairs = (name) => [...name.slice(1)].filter((letter, at) => type.includes(name[at] + letter)).length;
  const [nearest] = known.sort((a, b) => pairs(b) - pairs(a));
  return `unknown event "${type}"; ` + (pairs(nearest) ? `did you mean "${nearest}"?` : `use one of ${known.join(", ")}`);
}
function attempt(call, argument, failed) {
  try {
    call(argument);
  } catch (error) {
    failed(error);
  }
}

// src/line.ts
var MOST_EARLY = 1e3;
var Line = class {
  /** Number of the record delivered last. */
  last;
  /** Whether records are missing. Nothing is delivered until they are fetched. */
  behind = false;
  #again = false;
  // more records were missed during the fetch
  #early = /* @__PURE__ */ new Map();
  constructor(last) {
    this.last = last;
  }
  /** Return whether to deliver `record` now. A record that is not next in order is held. */
  offer(record) {
    if (record.seq <= this.last) return false;
    if (this.behind || record.seq !== this.last + 1) {
      this.behind = true;
      if (this.#early.size < MOST_EARLY) this.#early.set(record.seq, record);
      else this.#again = true;
      return false;
    }
    this.last = record.seq;
    return true;
  }
  /** Note that the server left records out. */
  miss() {
    this.#again = this.behind;
    this.behind = true;
  }
  /** Return the number up to which to fetch, if the newest record is `head`. A held record proves that earlier ones exist. */
  target(head) {
    return this.#early.size ? Math.max(head, Math.min(...this.#early.keys()) - 1) : head;
  }
  /** Return whether to deliver `record`, which was fetched. Numbers that are left out belong to deleted records. */
  fetched(record) {
    if (record.seq <= this.last) return false;
    this.last = record.seq;
    return true;
  }
  /** Return the held record that is next in order, if any, and advance to it. */
  next() {
    const record = this.#early.get(this.last + 1);
    if (record) this.last = record.seq;
    return record;
  }
  /** Advance to `head`: earlier records were delivered or no longer exist. */
  skip(head) {
    this.last = Math.max(this.last, head);
  }
  /** End a fetch. The line is still behind if more records were missed meanwhile. */
  settle() {
    for (const seq of this.#early.keys()) if (seq <= this.last) this.#early.delete(seq);
    this.behind = this.#again || this.#early.size > 0;
    this.#again = false;
  }
};

// src/stream.ts
var MOST_FETCHED = 1e3;
var PAGE = 300;
var Stream = class {
  #ends;
  #line = null;
  // a new one for each connection, so that an old fetch notices that it is obsolete
  #fetching = null;
  constructor(ends) {
    this.#ends = ends;
  }
  /** Number of the record delivered last; null if the stream is not followed. */
  get last() {
    return this.#line?.last ?? null;
  }
  /** Deliver records after `last`. A stream that is already followed continues at its position. */
  follow(last) {
    if (this.#line) return;
    this.#line = new Line(last);
    this.#ends.moved();
  }
  forget() {
    this.#line = null;
    this.#ends.moved();
  }
  /** Drop held records after a lost connection. The next connection delivers the records after the last one. */
  restart() {
    if (this.#line) this.#line = new Line(this.#line.last);
  }
  /** Process a record of an event. */
  offer(record) {
    if (this.#line?.offer(record)) this.#tell(record);
    else this.#look();
  }
  /** Fetch records that the server left out. */
  miss() {
    this.#line?.miss();
    this.#look();
  }
  /**
   * Advance to the newest record `head`: fetch the records before it, or report a gap if there are too many.
   *
   * `since` is `last` at the time of the request for the head. An answer may be older than records that came before it.
   * Only a head below `since` shows that the server lost records and continues numbering from there. The old cursor would
   * then drop every new record as already delivered.
   */
  reach(head, since = this.last) {
    this.follow(head);
    const line = this.#line;
    if (head < (since ?? 0) || head > line.last + MOST_FETCHED) {
      const after = line.last;
      line.last = head;
      this.#ends.moved();
      this.#ends.gap({ after, head });
    } else if (head > line.last) line.behind = true;
    this.#look();
  }
  #tell(record) {
    this.#ends.moved();
    this.#ends.tell(record);
  }
  #look() {
    const line = this.#line;
    if (!line?.behind || this.#fetching === line) return;
    this.#fetching = line;
    void this.#catchUp(line);
  }
  async #catchUp(line) {
    while (line === this.#line && line.behind) {
      try {
        await this.#fetch(line);
      } catch (error) {
        if (line !== this.#line) return;
        if (error.code === "disconnected") break;
        this.#ends.failed(error);
        line.skip(line.target(line.last));
        this.#settle(line);
      }
    }
    if (this.#fetching === line) this.#fetching = null;
  }
  /** Fetch and deliver missing records, then the records that came meanwhile. */
  async #fetch(line) {
    const head = line.target(await this.#ends.head());
    if (line !== this.#line) return;
    this.reach(head);
    while (line.last < head) {
      const page = await this.#ends.page(line.last);
      if (line !== this.#line) return;
      for (const record of page) if (line.fetched(record)) this.#tell(record);
      if (!page.length) line.skip(head);
    }
    this.#settle(line);
  }
  #settle(line) {
    let record;
    while (record = line.next()) this.#tell(record);
    line.settle();
    this.#ends.moved();
  }
};

// src/inbox.ts
var Inbox = class {
  /** Number of unread notifications, over all devices. */
  unread = 0;
  /** Number of unseen notifications, over all devices. */
  unseen = 0;
  #core;
  #events;
  #stream;
  #untold = [];
  // ranges of numbers that were not delivered to this program, first and last
  #reminded = /* @__PURE__ */ new Set();
  // numbers of these ranges that were delivered later
  /** @internal */
  constructor(core) {
    this.#core = core;
    this.#events = new Emitter(core.threw, { created: 1, updated: 1, badge: 1, resync: 1 });
    this.#stream = new Stream({
      head: async () => (await this.#page({ limit: 1 })).head,
      page: async (after) => (await this.#page({ after, limit: PAGE })).notifications.map(created),
      tell: (notification) => this.#tell(notification),
      gap: (gap) => {
        this.#untold.push([gap.after + 1, gap.head]);
        this.#events.emit("resync", gap);
      },
      failed: (error) => core.failed(error),
      moved: () => core.cursors.moveInbox(this.#stream.last)
    });
  }
  on(type, listener) {
    return this.#events.on(type, listener);
  }
  /** Fetch a page in ascending order: the oldest entries after `after`, else the newest entries (before `before`). */
  list(page = {}) {
    return this.#core.deliver(/* @__PURE__ */ Symbol(), "inbox.list", page, (reply) => this.#counted(reply));
  }
  seen(which) {
    return this.#mark("inbox.seen", which);
  }
  read(which) {
    return this.#mark("inbox.read", which);
  }
  archive(which) {
    return this.#mark("inbox.archive", which);
  }
  /** Acknowledge notifications. Until then the server resends notifications with `ack`, up to ten times and at each connect. */
  ack(which) {
    return this.#mark("inbox.ack", which);
  }
  // Called by the client
  /** @internal */
  get cursor() {
    return this.#stream.last;
  }
  /** @internal Start after the stored cursor: later notifications are delivered. */
  begin(cursor) {
    if (cursor !== null && this.#stream.last === null) this.#follow(cursor);
  }
  /** @internal Fetch the badge, and the number of the newest notification. A new client gets only later notifications. */
  restore() {
    const since = this.#stream.last;
    const found = ({ head }) => {
      if (this.#stream.last === null) this.#follow(head);
      this.#stream.reach(head, since);
    };
    this.#page({ limit: 1 }, found).catch((error) => {
      if (error.code !== "disconnected") this.#core.failed(error);
    });
  }
  /** Fetch a page on this connection only. */
  #page(page, fold) {
    return this.#core.ask("inbox.list", page, (reply) => {
      this.#counted(reply);
      fold?.(reply);
    });
  }
  /** @internal */
  lost() {
    this.#stream.restart();
  }
  /** @internal Discard the state of the previous user. */
  forget() {
    this.#stream.forget();
    this.#untold = [];
    this.#reminded.clear();
  }
  /** @internal */
  missed() {
    this.#stream.miss();
  }
  /** @internal */
  heard(type, data) {
    if (type === "inbox.badge") this.#counted(data);
    else if (type === "notification.updated") this.#events.emit("updated", data);
    else if (type === "notification.created") this.#created(data);
  }
  #created(notification) {
    if (notification.seq <= 0 || this.#isReminder(notification)) return this.#tell(notification);
    if (this.#stream.last === null) this.#follow(notification.seq - 1);
    this.#stream.offer(notification);
  }
  /** Return whether this is a redelivery of a notification that was never delivered to this program. */
  #isReminder({ seq, ack }) {
    if (!ack || this.#reminded.has(seq)) return false;
    const isUntold = this.#stream.last === null || this.#untold.some(([first, last]) => first <= seq && seq <= last);
    if (isUntold) this.#reminded.add(seq);
    return isUntold;
  }
  #follow(last) {
    this.#untold.push([1, last]);
    this.#stream.follow(last);
  }
  #tell(notification) {
    this.#events.emit("created", notification);
    this.#core.events.emit("notification", notification);
  }
  #counted({ unread, unseen }) {
    if (unread === this.unread && unseen === this.unseen) return;
    const badge = { unread, unseen };
    Object.assign(this, badge);
    this.#events.emit("badge", badge);
    this.#core.events.emit("badge", badge);
  }
  #mark(type, which) {
    const fields = typeof which === "object" && "through" in which ? which : { ids: [which].flat() };
    return this.#core.deliver("inbox", type, fields, (reply) => this.#counted(reply));
  }
};
function created({ seq, id, kind, body, created_at, ack }) {
  return { seq, id, kind, body, created_at, ack };
}

// src/limits.ts
var WELCOME_MS = 1e4;
var PATIENCE_MS = 1e4;
var PROBE_MS = 5e3;
var SILENT_BEATS = 2.5;
var CLOSE_MS = 1e3;
var FAREWELL_MS = 2e3;
var OPEN = 1;
var LOST = 1006;
var STEADY_MS = 5e3;
var CALM_MS = 1e3;
var RETRY_MS = 1e3;
var MOST_FAILURES = 5;
var PREPARED_MS = 3e4;
var EXPIRED = 4005;
var BAD_TOKEN = 4500;
var ENDS_SOON_MS = 5e3;
var LEAST_LEAD_MS = 1e3;
var MOST_LEAD_MS = 6e4;
var SAVE_MS = 250;
var MOST_ROOMS = 200;
var BATCH = 400;
var MOST_RESUMED = 400;
var POLL_MS = 6e4;

// src/people.ts
function isNewer(entry, known) {
  return !known || entry.version === 0 || entry.version >= known.version;
}
function merge(entry, known) {
  if (known?.version && entry.stale && entry.version === 0 && entry.state === "offline") return { ...known, stale: true };
  return entry.devices || !known?.devices || entry.version !== known.version ? entry : { ...entry, devices: known.devices };
}
function aged(entry, now) {
  if (!entry.until || entry.until > now) return entry;
  return { ...entry, status: "auto", until: null, status_text: null, state: entry.state === "busy" ? "online" : entry.state };
}
var People = class {
  #core;
  #watchers = /* @__PURE__ */ new Map();
  // user → listeners
  #known = /* @__PURE__ */ new Map();
  #said = /* @__PURE__ */ new Set();
  // users that the server watches for this connection
  #planned = false;
  #polling = null;
  #ageing = /* @__PURE__ */ new Map();
  constructor(core) {
    this.#core = core;
  }
  /**
   * Watch users: `listener` is called with the entry of each user as soon as it is known, then with every change.
   * Watches are counted: a user is watched until every watch is undone. All watches of one turn are one command.
   */
  watch(users, listener = () => {
  }) {
    const wanted = new Set(listed(users));
    const entry = { call: listener };
    for (const user of wanted) this.#watchers.set(user, (this.#watchers.get(user) ?? /* @__PURE__ */ new Set()).add(entry));
    this.#plan();
    queueMicrotask(() => {
      for (const user of wanted) {
        const known = this.#known.get(user);
        if (known && this.#watchers.get(user)?.has(entry)) attempt(listener, known, this.#core.threw);
      }
    });
    return () => {
      for (const user of wanted) {
        const watchers = this.#watchers.get(user);
        if (watchers?.delete(entry) && !watchers.size) this.#watchers.delete(user);
      }
      this.#plan();
    };
  }
  /** Return the known entry of a watched user, at least as new as the delivered one. A new object after each change. */
  of(user) {
    return this.#known.get(user);
  }
  /** Fetch the presence of these users, in this order, watched or not. */
  async get(users) {
    const pages = batches(listed(users)).map((batch) => {
      return this.#core.deliver(/* @__PURE__ */ Symbol(), "presence.get", { users: batch }, this.#learn);
    });
    return (await Promise.all(pages)).flatMap(({ presence }) => presence);
  }
  /** @internal Process an entry of an event or an answer. */
  heard(entry) {
    const known = this.#known.get(entry.user);
    if (!this.#watchers.has(entry.user) || !isNewer(entry, known)) return;
    const shown = aged(merge(entry, known), this.#core.now());
    this.#still(entry.user);
    if (shown.until) this.#ageing.set(entry.user, this.#core.clock.after(shown.until - this.#core.now(), () => this.heard(shown)));
    if (shown.mode === "poll") this.#poll();
    if (known && JSON.stringify(known) === JSON.stringify(shown)) return;
    this.#known.set(entry.user, shown);
    this.#core.events.emit("presence", shown);
    for (const { call } of [...this.#watchers.get(entry.user) ?? []]) attempt(call, shown, this.#core.threw);
  }
  /** @internal Watch all users again on a new connection. */
  restore() {
    this.#said.clear();
    this.#reconcile();
  }
  /** @internal Discard the entries of the previous user: visibility differs between users. */
  forget() {
    this.#known.clear();
  }
  #plan() {
    if (this.#planned) return;
    this.#planned = true;
    queueMicrotask(() => this.#reconcile());
  }
  /** Send `watch` and `unwatch` for the difference between the server's watches and the listeners. */
  #reconcile() {
    this.#planned = false;
    for (const user of this.#known.keys()) {
      if (this.#watchers.has(user)) continue;
      this.#known.delete(user);
      this.#still(user);
    }
    if (!this.#core.online) return;
    const gone = [...this.#said].filter((user) => !this.#watchers.has(user));
    const fresh = [...this.#watchers.keys()].filter((user) => !this.#said.has(user));
    for (const user of gone) this.#said.delete(user);
    for (const user of fresh) this.#said.add(user);
    for (const users of batches(gone)) this.#core.tell("unwatch", { users });
    for (const users of batches(fresh)) {
      this.#core.ask("watch", { users }, this.#learn).catch((error) => this.#refused(users, error));
    }
  }
  #still(user) {
    this.#ageing.get(user)?.();
    this.#ageing.delete(user);
  }
  #learn = ({ presence }) => presence.forEach((entry) => this.heard(entry));
  #refused(users, error) {
    if (error.code === "disconnected") return;
    for (const user of users) this.#said.delete(user);
    this.#core.failed(error);
  }
  /**
   * Fetch the users in mode `poll` later: the server does not send their changes. With jitter, because the watchers of a
   * user get the mode together, and must not read together.
   */
  #poll() {
    this.#polling ??= this.#core.clock.after(POLL_MS * (0.5 + this.#core.random()), () => {
      const users = [...this.#known.values()].filter(({ mode }) => mode === "poll").map(({ user }) => user);
      this.#polling = null;
      if (users.length) this.#poll();
      if (users.length && this.#core.online && this.#core.visible) this.get(users).catch(() => {
      });
    });
  }
  /** @internal */
  stop() {
    this.#polling?.();
    this.#polling = null;
    for (const user of this.#ageing.keys()) this.#still(user);
    this.#said.clear();
  }
};
function listed(users) {
  const list = typeof users === "string" ? [users] : [...users];
  for (const user of list) validId("user", user);
  return list;
}
function batches(users) {
  return Array.from({ length: Math.ceil(users.length / BATCH) }, (_, at) => users.slice(at * BATCH, (at + 1) * BATCH));
}

// src/typing.ts
var SLACK_MS = 1e3;
var EARLY_MS = 100;
var TYPING = { repeat_ms: 3e3, hold_ms: 5e3, throttle_ms: 2e3 };
var Typists = class {
  #ends = /* @__PURE__ */ new Map();
  #count = 0;
  // the server's count in large rooms, where names are not sent
  #countEnd = () => {
  };
  #clock;
  #changed;
  constructor(clock, changed) {
    this.#clock = clock;
    this.#changed = changed;
  }
  /** Typers in the order in which they started. */
  get typers() {
    return [...this.#ends.values()].map(({ typer }) => typer);
  }
  get count() {
    return Math.max(this.#count, this.#ends.size);
  }
  started({ user, name, info }, expiresInMs) {
    const known = this.#ends.get(user);
    known?.undo();
    const undo = this.#clock.after(expiresInMs + SLACK_MS, () => this.stopped(user));
    this.#ends.set(user, { typer: known?.typer ?? { user, name, info }, undo });
    if (!known) this.#changed();
  }
  stopped(user) {
    this.#ends.get(user)?.undo();
    if (this.#ends.delete(user)) this.#changed();
  }
  counted(count, expiresInMs) {
    this.#countEnd();
    this.#countEnd = count ? this.#clock.after(expiresInMs + SLACK_MS, () => this.counted(0, 0)) : () => {
    };
    const changed = count !== this.#count;
    this.#count = count;
    if (changed) this.#changed();
  }
  clear() {
    for (const user of [...this.#ends.keys()]) this.stopped(user);
    this.counted(0, 0);
  }
};
var Keystrokes = class {
  #say;
  #clock;
  #times;
  #startedAt = -Infinity;
  #holds = false;
  // a start was sent, and no stop after it
  #later = () => {
  };
  constructor(clock, say, times) {
    this.#clock = clock;
    this.#say = say;
    this.#times = times;
  }
  typing(isTyping) {
    this.#later();
    if (!isTyping) {
      if (this.#holds) this.#say("typing.stop");
      this.#holds = false;
      return;
    }
    const { repeat_ms, throttle_ms } = this.#times();
    const wait = this.#startedAt + (this.#holds ? repeat_ms : throttle_ms + EARLY_MS) - this.#clock.now();
    if (wait <= 0) this.#start();
    else if (!this.#holds) this.#later = this.#clock.after(wait, () => this.#start());
  }
  /** Reset after a message or a lost connection, which end the typing on the server. */
  ended(forgetting = false) {
    this.#later();
    this.#holds = false;
    if (forgetting) this.#startedAt = -Infinity;
  }
  #start() {
    if (!this.#say("typing.start")) return;
    this.#startedAt = this.#clock.now();
    this.#holds = true;
  }
};

// src/room.ts
var MOST_SENT = 500;
var EVENTS = {
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
  archived: 1
};
var Room = class {
  name;
  /** Number of the newest known message; 0 before the room is joined. */
  head = 0;
  /** Number of users in the room; null before it is joined. */
  count = null;
  /** Whether the room is joined on this connection. */
  joined = false;
  /** Whether the app has archived the room: it can only be read. */
  archived = false;
  #core;
  #events;
  #stream;
  #typists;
  #keystrokes;
  #typing;
  #wanted = 0;
  // `join` calls without a `leave`
  #after = null;
  // the option `after` of the first join
  #history;
  // the option `history` of a join without an answer
  #said = false;
  // a join was sent, and no leave after it
  #entry = 0;
  // number of the last join sent; answers to older joins are ignored
  #waiters = [];
  // callers that wait for the join
  #marker = 0;
  // number of the last read message
  #sent = /* @__PURE__ */ new Set();
  // keys of own messages whose events may still come
  /** @internal */
  constructor(core, name) {
    this.name = name;
    this.#core = core;
    this.#events = new Emitter(core.threw, EVENTS);
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
      moved: () => core.cursors.moveRoom(name, this.#stream.last)
    });
  }
  /** Number of unread messages. */
  get unread() {
    return Math.max(0, this.head - this.#marker);
  }
  /** Users who type. The same object until something changes. */
  get typers() {
    return this.#typing;
  }
  on(type, listener) {
    return this.#events.on(type, listener);
  }
  /**
   * Join this room, now and after every reconnect. Waits for a connection. Messages after number `after`, or after the
   * stored cursor, are delivered first. With neither, only new messages are delivered.
   * With `history`, the result has the newest messages, at most 100, and the events continue after them.
   * Joins are counted: the room is left after one `leave` for each `join`.
   */
  join({ after, history } = {}) {
    if (after !== void 0 && history !== void 0) throw new GreendotError("bad_field", "give `after` or `history`, not both");
    this.#wanted += 1;
    if (after !== void 0 && this.#stream.last === null) this.#after = after;
    if (history !== void 0) this.#history = Math.max(history, this.#history ?? 0);
    else if (this.joined) return Promise.resolve(this.#standing());
    const promise = new Promise((resolve, reject) => {
      this.#waiters.push((error, joined) => error ? reject(error) : resolve(joined));
    });
    promise.catch(() => {
    });
    this.#plan();
    return promise;
  }
  leave() {
    if (!this.#wanted || --this.#wanted) return;
    this.#outside(new GreendotError("closed", "room left"));
    this.#plan();
  }
  /**
   * Send a message. Resolves when the server has stored it. Without a connection, messages wait in order. The key, by
   * default a generated one, makes the server store the message once, however often it is sent.
   */
  send(body, options) {
    this.#keystrokes.ended();
    return this.#write("room.send", { body }, options);
  }
  /** Replace the body of the message with number `ref`. */
  edit(ref, body, options) {
    return this.#write("room.edit", { ref, body }, options);
  }
  /** Delete the message with number `ref`. */
  delete(ref, options) {
    return this.#write("room.delete", { ref }, options);
  }
  /** Set a reaction of this user to the message with number `ref`, or remove it with `on: false`. Repeating it changes nothing. */
  react(ref, reaction, { on = true, key } = {}) {
    return this.#write("room.react", { ref, reaction, on }, { key });
  }
  /** Fetch messages in ascending order, without the bounds: the oldest after `after`, else the newest (before `before`). */
  async history(bounds = {}) {
    return (await this.#core.deliver(/* @__PURE__ */ Symbol(), "room.history", { room: this.name, ...bounds })).messages;
  }
  /** Mark messages up to number `seq` as read, by default all. Returns the number of unread messages. Waits for a connection. */
  async read(seq = this.head) {
    this.#readUpTo(seq);
    const lane = `read ${this.name}`;
    return (await this.#core.deliver(lane, "room.read", { room: this.name, seq })).unread;
  }
  /** Report typing. Call it at every keystroke, with false when the field is empty. The client sends it every 3 s. */
  typing(isTyping = true) {
    this.#keystrokes.typing(isTyping);
  }
  /** Fetch a page of the users in the room, ordered by id, with their names and info. */
  present(page = {}) {
    return this.#core.deliver(/* @__PURE__ */ Symbol(), "room.present", { room: this.name, ...page });
  }
  receipts(page = {}) {
    return this.#core.deliver(/* @__PURE__ */ Symbol(), "room.receipts", { room: this.name, ...page });
  }
  signal(kind, body, options) {
    return this.#core.signal({ room: this.name, kind, body }, options);
  }
  // Called by the client
  /** @internal Number to resume from; null if the room is not joined. */
  get cursor() {
    return this.#wanted ? this.#stream.last : null;
  }
  /** @internal */
  restore(state) {
    this.#said = false;
    if (!this.#wanted) return;
    if (state?.truncated) this.#stream.reach(state.head);
    this.#enter(!state);
  }
  /** @internal */
  lost() {
    this.joined = this.#said = false;
    this.#stream.restart();
    this.#keystrokes.ended(true);
  }
  /** @internal Reject callers that wait for the join: the client is closed. */
  stop(error) {
    this.lost();
    this.#typists.clear();
    this.#answer(error);
  }
  /** @internal Discard the state of the previous user. */
  forget() {
    this.#stream.forget();
    this.head = this.#marker = 0;
  }
  /** @internal */
  missed() {
    this.#stream.miss();
  }
  /** @internal */
  heard(type, data, trace) {
    if (!this.#wanted && type !== "room.changed") return;
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
      case "room.left":
        this.#counted(Math.max((this.count ?? 0) + (type === "room.left" ? -1 : 1), 0));
      // falls through
      case "room.profile":
      case "room.receipt":
      case "room.receipt_count":
        return this.#events.emit(type.slice(5), data);
      case "room.count":
        return this.#counted(data.count);
      case "signal":
        return this.#events.emit("signal", data);
      case "room.changed":
        if (data.removed) this.#removed(data.reason);
        else if (data.archived !== void 0) this.#events.emit("archived", this.archived = data.archived);
        else if (data.read !== void 0) this.#readUpTo(data.read);
    }
  }
  /** Fetch a page of the history on this connection only. */
  async #page(bounds) {
    return (await this.#core.ask("room.history", { room: this.name, ...bounds })).messages;
  }
  #plan() {
    queueMicrotask(() => {
      const isAgain = this.joined && this.#history !== void 0;
      if (!this.#core.online || this.#wanted > 0 === this.#said && !isAgain) return;
      if (this.#wanted) return this.#enter(true);
      this.#said = false;
      this.#core.tell("room.leave", { room: this.name });
    });
  }
  #enter(recovering) {
    const entry = ++this.#entry;
    const history = this.#history;
    const isNumbered = recovering && history === void 0;
    const after = (isNumbered ? this.#stream.last ?? this.#after ?? this.#core.cursors.room(this.name) : null) ?? void 0;
    this.#said = true;
    this.#core.ask("room.join", { room: this.name, after, history }, (reply) => {
      if (entry === this.#entry && this.#said) this.#entered(reply, after, history !== void 0);
    }).catch((error) => {
      if (entry !== this.#entry || error.code === "disconnected") return;
      this.#said = false;
      const isFirst = this.#waiters.length > 0;
      this.#removed(error.code, error);
      if (!isFirst) this.#core.failed(error);
    });
  }
  #entered(reply, after, hasHistory) {
    this.joined = true;
    this.#stream.follow(after ?? reply.head);
    this.#after = null;
    this.#history = void 0;
    this.#marker = Math.max(this.#marker, reply.head - reply.unread);
    for (const message of reply.messages) this.#stream.offer(message);
    if (reply.truncated || hasHistory) this.#stream.reach(reply.head);
    this.#advance(reply.head);
    this.#typists.clear();
    for (const typer of reply.typing) this.#typists.started(typer, typer.expires_in_ms);
    if (reply.typing_count > reply.typing.length) this.#typists.counted(reply.typing_count, this.#core.typing.hold_ms);
    this.#counted(reply.present);
    this.archived = !!reply.archived;
    this.#events.emit("unread", this.unread);
    const joined = this.#standing(hasHistory ? reply.messages : []);
    this.#events.emit("joined", joined);
    this.#answer(void 0, joined);
  }
  /** Resolve callers that wait for the join, or reject them with `error`. */
  #answer(error, joined) {
    for (const waiter of this.#waiters.splice(0)) waiter(error, joined);
  }
  #standing(messages = []) {
    return { room: this.name, head: this.head, unread: this.unread, present: this.count ?? 0, messages };
  }
  #removed(why, error = new GreendotError(why ?? "not_a_member", "no longer in this room")) {
    this.#wanted = 0;
    this.#said = false;
    this.#outside(error);
    this.forget();
    this.#events.emit("removed", why);
  }
  #outside(error) {
    this.joined = false;
    this.count = null;
    this.#after = null;
    this.#history = void 0;
    this.#stream.forget();
    this.#typists.clear();
    this.#keystrokes.ended();
    this.#answer(error);
  }
  #write(type, fields, { key = newKey() } = {}) {
    this.#sent.add(key);
    const [oldest] = this.#sent;
    if (this.#sent.size > MOST_SENT) this.#sent.delete(oldest);
    return this.#core.deliver(`room ${this.name}`, type, { room: this.name, ...fields, key, trace: key });
  }
  #tell(message) {
    if (message.ref === null) this.#typists.stopped(message.user);
    this.#advance(Math.max(this.head, message.seq));
    this.#events.emit("message", message);
    this.#core.events.emit("message", message);
  }
  #advance(head) {
    if (head === this.head) return;
    this.head = head;
    this.#events.emit("unread", this.unread);
  }
  #readUpTo(seq) {
    if (seq <= this.#marker) return;
    this.#marker = seq;
    this.#events.emit("unread", this.unread);
  }
  #counted(count) {
    if (count === this.count) return;
    this.count = count;
    this.#events.emit("count", count);
  }
  #typingChanged() {
    const { typers, count } = this.#typists;
    this.#typing = { room: this.name, typers, count };
    this.#events.emit("typing", this.#typing);
    this.#core.events.emit("typing", this.#typing);
  }
};

// src/backoff.ts
var BACKOFF = { baseMs: 500, capMs: 3e4 };
var LONGEST_HINT_MS = 3e5;
function backoff(failures, hintMs, random, { baseMs, capMs } = BACKOFF) {
  if (hintMs !== null) return Math.min(Math.max(hintMs, 0), LONGEST_HINT_MS) + random() * baseMs;
  return random() * Math.min(capMs, baseMs * 2 ** failures);
}

// src/clock.ts
var LONGEST_MS = 2147483647;
var systemClock = {
  now: () => Date.now(),
  after(ms, call) {
    const timer = setTimeout(call, Math.min(ms, LONGEST_MS));
    return () => clearTimeout(timer);
  }
};

// src/link.ts
function encode(type, fields = {}) {
  return JSON.stringify({ type, ...fields });
}
function byteLength(text) {
  return new TextEncoder().encode(text).length;
}
var Link = class {
  /** Whether the link has received its welcome and has not ended. */
  open = false;
  #socket;
  #on;
  #clock;
  #random;
  #waiting = /* @__PURE__ */ new Map();
  #lastId = 0;
  #heard;
  // time of the last frame, by the wall clock, which continues while the computer sleeps
  #answers = false;
  // a frame came since the last probe
  #silentMs = Infinity;
  #most = 65536;
  // maximum bytes of a frame
  #opened = false;
  #refusal = null;
  #beating;
  #probing = () => {
  };
  constructor(socket, hello, on, clock, random) {
    this.#socket = socket;
    this.#on = on;
    this.#clock = clock;
    this.#random = random;
    this.#heard = clock.now();
    this.#beating = clock.after(WELCOME_MS, () => this.drop());
    socket.onopen = () => {
      this.#opened = true;
      this.#write(encode("hello", { ...hello, id: 0 }));
    };
    socket.onmessage = (message) => this.#received(message.data);
    socket.onclose = (close) => this.#ended(close.code, close.reason);
    socket.onerror = () => this.#failed();
  }
  /** Send a command that needs no answer. Returns whether it was sent. */
  tell(command) {
    if (!this.open) return false;
    this.#check(command);
    return this.#write(command);
  }
  /**
   * Send a command and return the data of its answer. `fold` receives the data before any later frame is processed. The
   * promise resolves later: several frames may arrive in one turn.
   */
  request(command, fold) {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      this.#check(command);
      if (!this.open || !this.#write(`{"id":${id},${command.slice(1)}`)) throw disconnected();
      const undo = this.#clock.after(PATIENCE_MS, () => this.probe());
      this.#waiting.set(id, { resolve, reject, fold, undo });
    });
  }
  /** Check now whether the server still answers, for example after sleep. */
  probe() {
    if (!this.open) return;
    if (this.#clock.now() - this.#heard > this.#silentMs) return this.drop();
    this.#write(encode("heartbeat"));
    this.#probing();
    this.#answers = false;
    this.#probing = this.#clock.after(PROBE_MS, () => this.#answers || this.drop());
  }
  /** End the link without waiting for the socket to close: on a dead network, the close can take minutes. */
  drop(detail = "no answer from the server") {
    this.#socket.onerror = () => {
    };
    this.#socket.close();
    this.#ended(LOST, detail);
  }
  /** End the link. `bye` ends the session too. */
  leave(bye) {
    if (!bye || !this.open) return this.drop("closed");
    this.#write(encode("bye"));
    this.#ended(LOST, "closed");
    const undo = this.#clock.after(FAREWELL_MS, () => this.#socket.close());
    this.#socket.onclose = undo;
  }
  #write(text) {
    if (this.#socket.readyState !== OPEN) return false;
    this.#socket.send(text);
    return true;
  }
  /** Refuse a command that is too large. The server would close the socket (1009), and every reconnect would resend it. */
  #check(command) {
    if (byteLength(command) > this.#most - 32) {
      throw new GreendotError("too_large", `command exceeds ${this.#most} bytes`);
    }
  }
  #received(text) {
    this.#heard = this.#clock.now();
    this.#answers = true;
    let frame;
    try {
      frame = JSON.parse(String(text));
    } catch {
      return;
    }
    if (!this.#on || typeof frame?.type !== "string") return;
    if (frame.type === "reply") this.#answered(frame);
    else if (frame.type === "error") this.#refused(frame);
    else {
      if (frame.type === "welcome") this.#welcomed(frame.data);
      frame.data ??= {};
      this.#on.event(frame);
    }
  }
  #answered(frame) {
    const waiting = this.#settle(frame.id);
    waiting?.fold?.(frame.data);
    waiting?.resolve(frame.data);
  }
  #refused(frame) {
    const error = new GreendotError(frame.code, frame.message, !!frame.retry, frame.retry_in_ms ?? null);
    if (this.open) {
      const waiting = this.#settle(frame.id);
      if (waiting) waiting.reject(error);
      else this.#on.failure(error);
    } else {
      this.#refusal = error;
      this.drop(error.message);
    }
  }
  #welcomed({ heartbeat_s, limits }) {
    this.open = true;
    this.#silentMs = heartbeat_s * SILENT_BEATS * 1e3;
    this.#most = limits.frame_bytes;
    this.#beating();
    this.#beatIn(heartbeat_s * 1e3 * (0.5 + this.#random() / 2), heartbeat_s * 1e3);
  }
  #beatIn(ms, next) {
    this.#beating = this.#clock.after(ms, () => {
      if (this.#clock.now() - this.#heard > this.#silentMs) return this.drop();
      this.#write(encode("heartbeat"));
      this.#beatIn(next, next);
    });
  }
  #settle(id) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiting?.undo();
    return waiting;
  }
  /** Handle an error event. Browsers and ws fire `close` after it, undici does not. */
  #failed() {
    if (!this.#on) return;
    if (!this.#opened) return this.drop("");
    this.#probing();
    this.#probing = this.#clock.after(CLOSE_MS, () => this.drop());
  }
  #ended(code, detail) {
    const on = this.#on;
    if (!on) return;
    this.#on = null;
    this.open = false;
    this.#beating();
    this.#probing();
    for (const id of [...this.#waiting.keys()]) this.#settle(id).reject(disconnected(detail));
    on.end({ code, detail, refusal: this.#refusal, opened: this.#opened });
  }
};
function disconnected(detail) {
  return new GreendotError("disconnected", detail || "not connected", true);
}

// src/outbox.ts
var Outbox = class {
  #lanes = /* @__PURE__ */ new Map();
  #running = /* @__PURE__ */ new Set();
  #count = 0;
  #bytes = 0;
  #most;
  #transmit;
  #clock;
  constructor(most, transmit, clock) {
    this.#most = { count: 200, bytes: 1048576, ...most };
    this.#transmit = transmit;
    this.#clock = clock;
  }
  get size() {
    return this.#count;
  }
  /** Send a command and return its answer, across reconnects. */
  send(lane, command, fold) {
    const bytes = byteLength(command);
    if (this.#count >= this.#most.count || this.#bytes + bytes > this.#most.bytes) {
      const full = `\`queue\` is full: ${this.#count} commands (${this.#bytes} bytes) wait`;
      return Promise.reject(new GreendotError("queue_full", full, true));
    }
    return new Promise((resolve, reject) => {
      const waiting = this.#lanes.get(lane) ?? [];
      this.#lanes.set(lane, waiting);
      waiting.push({ command, bytes, failures: 0, fold, resolve, reject });
      this.#count += 1;
      this.#bytes += bytes;
      void this.#run(lane);
    });
  }
  /** Send the commands that wait, on a new connection. */
  flush() {
    for (const lane of this.#lanes.keys()) void this.#run(lane);
  }
  /** Reject all commands: the client is closed. */
  fail(error) {
    for (const waiting of this.#lanes.values()) for (const sending of waiting) sending.reject(error);
    this.#lanes.clear();
    this.#count = this.#bytes = 0;
  }
  async #run(lane) {
    if (this.#running.has(lane)) return;
    this.#running.add(lane);
    let sending;
    while ((sending = this.#lanes.get(lane)?.[0]) && await this.#try(lane, sending)) ;
    this.#running.delete(lane);
  }
  /** Send one command. Returns whether to continue with the lane. */
  async #try(lane, sending) {
    try {
      const reply = await this.#transmit(sending.command, sending.fold);
      if (this.#done(lane, sending)) sending.resolve(reply);
    } catch (error) {
      const { code, retry, retryInMs } = error;
      if (code === "disconnected") return false;
      if (code === "internal") sending.failures += 1;
      if (retry && sending.failures < MOST_FAILURES) {
        await new Promise((resolve) => this.#clock.after(retryInMs ?? RETRY_MS, resolve));
      } else if (this.#done(lane, sending)) sending.reject(error);
    }
    return true;
  }
  /** Remove a command from its lane. Returns false if `fail` has removed it. */
  #done(lane, sending) {
    const waiting = this.#lanes.get(lane);
    if (waiting?.[0] !== sending) return false;
    waiting.shift();
    if (!waiting.length) this.#lanes.delete(lane);
    this.#count -= 1;
    this.#bytes -= sending.bytes;
    return true;
  }
};

// src/page.ts
var SIGNS = {
  network: ["online", "offline"],
  visibility: ["visibilitychange", "pageshow"],
  activity: ["pointerdown", "pointermove", "keydown", "wheel"],
  // a touch fires pointer events too
  leave: ["pagehide"]
};
function browserPage() {
  if (typeof document === "undefined") return null;
  return {
    isOnline: () => navigator.onLine,
    isVisible: () => document.visibilityState !== "hidden",
    on(sign, call) {
      const listener = () => call();
      const how = { passive: true, capture: true };
      for (const type of SIGNS[sign]) window.addEventListener(type, listener, how);
      return () => {
        for (const type of SIGNS[sign]) window.removeEventListener(type, listener, how);
      };
    }
  };
}

// src/reasons.ts
var REASONS = {
  unreachable: ["The server cannot be reached.", "wait"],
  lost: ["The connection was lost.", "wait"],
  offline: ["This device is offline.", "check-network"],
  no_token: ["Your sign-in could not be checked.", "wait"],
  signed_out: ["You are not signed in.", "sign-in"],
  refused: ["The server refused this page.", "reload"],
  closed: ["Disconnected.", "none"],
  4e3: ["The server is restarting.", "wait"],
  4001: ["The connection was too slow.", "wait"],
  4003: ["The server is very busy.", "wait"],
  4004: ["Missed updates are being loaded.", "wait"],
  4005: ["Your sign-in is being renewed.", "wait"],
  4500: ["Your sign-in is not valid.", "sign-in"],
  4501: ["You were signed out.", "sign-in"],
  4502: ["A protocol error occurred.", "reload"],
  4503: ["You were disconnected by the operator.", "ask"],
  4504: ["This page is out of date.", "reload"],
  4505: ["You are connected in another window.", "use-here"]
};
function isFinal(code) {
  return code >= 4500 && code <= 4999;
}
function reasonFor(code, detail = "", retryInMs = null) {
  const other = typeof code === "number" && !isFinal(code) ? "lost" : "refused";
  const [text, action] = REASONS[code] ?? REASONS[other];
  return { code, text, action, retryInMs, detail };
}

// src/store.ts
function memoryStore() {
  const kept = /* @__PURE__ */ new Map();
  return { get: (key) => kept.get(key) ?? null, set: (key, value) => void kept.set(key, value) };
}
function localStore(prefix = "greendot:", storage = localStorage) {
  return { get: (key) => storage.getItem(prefix + key), set: (key, value) => storage.setItem(prefix + key, value) };
}
var Cursors = class {
  #store;
  #clock;
  #failed;
  #owner = null;
  #rooms = /* @__PURE__ */ new Map();
  #inbox = null;
  #saving = null;
  constructor(store, clock, failed) {
    this.#store = store;
    this.#clock = clock;
    this.#failed = failed;
  }
  get inbox() {
    return this.#inbox;
  }
  room(name) {
    return this.#rooms.get(name) ?? null;
  }
  /** Save and detach the previous user: moves until `load` are not saved. Returns false if the user is the same. */
  leave(owner) {
    if (owner === this.#owner) return false;
    this.save();
    this.#owner = null;
    return true;
  }
  /** Load the cursors of this user. */
  async load(owner) {
    const kept = await this.#guarded(async () => JSON.parse(await this.#store.get(`cursors:${owner}`) ?? "{}"));
    this.#owner = owner;
    this.#rooms = new Map(Object.entries(kept?.rooms ?? {}).filter(([, seq]) => Number.isSafeInteger(seq)));
    this.#inbox = Number.isSafeInteger(kept?.inbox) ? kept.inbox : null;
  }
  /** Move the cursor of a room. Null removes it. */
  moveRoom(name, seq) {
    this.#rooms.delete(name);
    if (seq !== null) this.#rooms.set(name, seq);
    const [oldest] = this.#rooms.keys();
    if (this.#rooms.size > MOST_ROOMS) this.#rooms.delete(oldest);
    this.#later();
  }
  moveInbox(seq) {
    this.#inbox = seq;
    this.#later();
  }
  save() {
    if (!this.#saving) return;
    this.#saving();
    this.#saving = null;
    const kept = JSON.stringify({ rooms: Object.fromEntries(this.#rooms), inbox: this.#inbox });
    const owner = this.#owner;
    void this.#guarded(async () => this.#store.set(`cursors:${owner}`, kept));
  }
  /** Return this device's name. It is the same as long as the storage keeps it. */
  async device(make) {
    const kept = await this.#guarded(async () => this.#store.get("device"));
    if (kept) return kept;
    const made = make();
    await this.#guarded(async () => this.#store.set("device", made));
    return made;
  }
  #later() {
    if (this.#owner !== null) this.#saving ??= this.#clock.after(SAVE_MS, () => this.save());
  }
  async #guarded(work) {
    try {
      return await work();
    } catch (error) {
      this.#failed(because("storage", "storage failed", error));
      return null;
    }
  }
};

// src/tokens.ts
function claimsOf(token) {
  try {
    const part = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const { tenant = "", sub = "", exp } = JSON.parse(atob(part));
    return { owner: `${tenant}/${sub}`, expiresAt: Number.isFinite(exp) ? exp * 1e3 : null };
  } catch {
    return { owner: "", expiresAt: null };
  }
}
var Tokens = class {
  #get;
  #kept = null;
  #wanted = "first";
  #lead = 0;
  claims = claimsOf("");
  constructor(get) {
    this.#get = get;
  }
  /** Return a valid token, or null if no user is signed in. Fails with `no_token` if `getToken` fails. `now` is the server's time. */
  async current(now) {
    const { expiresAt } = this.claims;
    if (this.#kept !== null && expiresAt !== null && expiresAt - now > ENDS_SOON_MS) return this.#kept;
    return this.renew(this.#kept === null ? this.#wanted : "expired", now);
  }
  async renew(why, now) {
    const token = await this.#ask(why);
    this.#kept = token;
    this.claims = claimsOf(token ?? "");
    this.#wanted = "first";
    this.#lead = Math.min(Math.max(((this.claims.expiresAt ?? 0) - now) / 5, LEAST_LEAD_MS), MOST_LEAD_MS);
    return token;
  }
  /** Discard the token. The next call of `current` requests another one. */
  forget(why) {
    this.#kept = null;
    this.#wanted = why;
  }
  /** Return the delay before the token must be replaced; null if the token has no expiry. */
  refreshInMs(now, random) {
    const { expiresAt } = this.claims;
    return expiresAt === null ? null : Math.max(expiresAt - this.#lead * (1 + random() / 2) - now, 0);
  }
  async #ask(why) {
    try {
      return await this.#get(why) || null;
    } catch (error) {
      throw because("no_token", "getToken failed", error);
    }
  }
};

// src/session.ts
var EVENTS2 = {
  state: 1,
  welcome: 1,
  presence: 1,
  typing: 1,
  message: 1,
  notification: 1,
  badge: 1,
  signal: 1,
  error: 1,
  refresh: 1,
  event: 1
};
var openAny;
var Session = class {
  connection = { state: "idle", reason: null, failures: 0 };
  welcome = null;
  clock;
  page;
  cursors;
  events;
  outbox;
  #options;
  #owner;
  #tokens;
  random;
  #url;
  #webSocket;
  #link = null;
  #attempt = 0;
  // number of the current attempt; results of older attempts are ignored
  #failures = 0;
  #onlineAt = Infinity;
  #ahead = 0;
  // milliseconds that the server's clock is ahead of the local clock
  #hintMs = null;
  // minimum delay before the next attempt, from the server
  #notBefore = 0;
  // earliest time of the next attempt after a wake-up
  #anotherToken = true;
  // whether to request another token if the server refuses this one
  #timer = () => {
  };
  #refreshing = () => {
  };
  #unlisten = [];
  constructor(options, owner) {
    const { clock = systemClock, random = Math.random, page = browserPage(), storage = memoryStore() } = options;
    this.#options = options;
    this.#owner = owner;
    this.#url = addressOf(options.url);
    this.#webSocket = options.webSocket ?? globalThis.WebSocket;
    this.#tokens = new Tokens(options.getToken);
    this.random = random;
    this.clock = clock;
    this.page = page;
    this.cursors = new Cursors(storage, clock, this.failed);
    this.events = new Emitter(this.threw, EVENTS2);
    this.outbox = new Outbox(options.queue, (command, fold) => this.#request(command, fold), clock);
  }
  get online() {
    return this.#link?.open ?? false;
  }
  get typing() {
    return this.welcome?.typing ?? TYPING;
  }
  get visible() {
    return this.page?.isVisible() ?? true;
  }
  /** Return the estimated time of the server. */
  now() {
    return this.clock.now() + this.#ahead;
  }
  // Commands of rooms, inbox and presence
  /** Send a command that is useless later. Returns whether it was sent. */
  tell(type, fields) {
    return this.#link?.tell(encode(type, fields)) ?? false;
  }
  /** Send a signal, and ask for a reply if the caller wants one. */
  signal(fields, { key, reply } = {}) {
    return this[reply ? "ask" : "tell"]("signal.send", { ...fields, key });
  }
  /** Send a command on this connection, with retries, and return the answer. Fails with `disconnected` without a connection. */
  async ask(type, fields, fold) {
    const link = this.#link;
    for (; ; ) {
      try {
        return await (link === this.#link ? this.#request(encode(type, fields), fold) : lost());
      } catch (error) {
        const { code, retry, retryInMs } = error;
        if (!retry || code === "disconnected" || code === "internal") throw error;
        await new Promise((resolve) => this.clock.after(retryInMs ?? RETRY_MS, resolve));
      }
    }
  }
  /** Send an idempotent command and return its answer, across reconnects. Each lane keeps its order. */
  async deliver(lane, type, fields, fold) {
    const { state, reason } = this.connection;
    if (state === "closed") throw new GreendotError("closed", reason.text);
    return this.outbox.send(lane, encode(type, fields), fold);
  }
  /** Emit an error that no promise reports. */
  failed = (error) => this.events.emit("error", error);
  /** Log and emit the error of a listener for this event type. */
  threw = (error, type) => {
    console.error("greendot: a listener threw", error);
    if (type !== "error") this.failed(because("listener", "a listener threw", error));
  };
  #request(command, fold) {
    return this.#link ? this.#link.request(command, fold) : lost();
  }
  // Links
  connect() {
    const { state } = this.connection;
    if (!this.#webSocket) throw new GreendotError("bad_field", "no global WebSocket: set `webSocket`");
    if (state === "online" || state === "connecting") return;
    if (state === "idle" || state === "closed") {
      this.#failures = 0;
      this.#anotherToken = true;
      this.#listen();
    }
    void this.#connect();
  }
  close(bye) {
    if (this.connection.state !== "closed") this.#stop(reasonFor("closed"), bye);
  }
  async #connect() {
    const attempt2 = ++this.#attempt;
    const tokens = this.#tokens;
    this.#timer();
    this.#timer = this.clock.after(PREPARED_MS, () => {
      this.#attempt += 1;
      this.#wait("no_token", "getToken did not answer");
    });
    this.#become("connecting", null);
    let link;
    try {
      const token = await tokens.current(this.now());
      if (attempt2 !== this.#attempt) return;
      if (token === null) return this.#stop(reasonFor("signed_out"));
      const hello = await this.#owner.hello(token, tokens.claims.owner);
      if (attempt2 !== this.#attempt) return;
      const on = {
        event: (frame) => this.#received(frame),
        failure: this.failed,
        end: (end) => link === this.#link && this.#ended(end)
      };
      this.#timer();
      const socket = openAny?.(this.#url, this.#options) ?? new this.#webSocket(this.#url);
      this.#link = link = new Link(socket, hello, on, this.clock, this.random);
    } catch (error) {
      if (attempt2 !== this.#attempt) return;
      const { code, message } = error;
      if (code === "no_token") this.failed(error);
      this.#wait(code === "no_token" ? code : "unreachable", message);
    }
  }
  #received(frame) {
    const data = frame.data;
    if (frame.type === "welcome") {
      this.welcome = data;
      this.#ahead = data.server_time - this.clock.now();
      this.#onlineAt = this.clock.now();
      this.#hintMs = null;
      this.#planRefresh();
      this.#owner.event(frame);
      this.#become("online", null);
      return;
    }
    if (frame.type === "drain" || frame.type === "overloaded") this.#hintMs = data.retry_in_ms;
    this.#owner.event(frame);
  }
  #ended({ code, detail, refusal, opened }) {
    this.#link = null;
    this.#refreshing();
    if (this.clock.now() - this.#onlineAt > STEADY_MS) {
      this.#failures = 0;
      this.#anotherToken = true;
    }
    if (!opened) import("./greendot-sse.js").then(({ open }) => openAny = open, () => {
    });
    this.#onlineAt = Infinity;
    this.#owner.lost();
    if (code === EXPIRED || code === BAD_TOKEN) {
      this.#tokens.forget(code === EXPIRED ? "expired" : "refused");
      if (this.#anotherToken) {
        this.#anotherToken = false;
        return void this.#connect();
      }
    }
    if (refusal) this.#hintMs = refusal.retryInMs;
    if (isFinal(code)) this.#stop(reasonFor(code, detail));
    else if (refusal && !refusal.retry) this.#stop(reasonFor(refusal.code, detail));
    else this.#wait(opened ? code : "unreachable", detail);
  }
  #wait(code, detail) {
    this.#timer();
    const bounds = { ...BACKOFF, ...this.#options.backoff };
    const isOnline = this.page?.isOnline() ?? true;
    const ms = isOnline ? Math.round(backoff(this.#failures, this.#hintMs, this.random, bounds)) : bounds.capMs;
    if (code !== "offline") {
      this.#notBefore = this.clock.now() + Math.max(CALM_MS, this.#hintMs ?? 0);
      this.#failures += 1;
    }
    this.#hintMs = null;
    this.#timer = this.clock.after(ms, () => void this.#connect());
    this.#become(isOnline ? "waiting" : "offline", reasonFor(isOnline ? code : "offline", detail, ms));
  }
  #stop(reason, bye = false) {
    const link = this.#link;
    this.#attempt += 1;
    this.#link = null;
    link?.leave(bye);
    this.#tokens.forget("first");
    this.#timer();
    this.#refreshing();
    for (const undo of this.#unlisten.splice(0)) undo();
    this.#owner.closed(new GreendotError("closed", reason.detail || reason.text));
    this.#become("closed", reason);
  }
  #become(state, reason) {
    this.connection = { state, reason, failures: this.#failures };
    this.events.emit("state", this.connection);
  }
  // The page
  #listen() {
    const { page } = this;
    if (!page || this.#unlisten.length) return;
    this.#unlisten = [
      page.on("network", () => this.#wake()),
      page.on("visibility", () => page.isVisible() && this.#wake())
    ];
  }
  /** Check the connection after sleep, a network change, or when the page becomes visible. */
  #wake() {
    const { state } = this.connection;
    if (this.#link) return this.#link.probe();
    if (state !== "waiting" && state !== "offline") return;
    const ms = Math.max(this.#notBefore - this.clock.now(), 0);
    if (this.page.isOnline()) {
      this.#timer();
      this.#timer = this.clock.after(ms, () => void this.#connect());
      if (state === "offline") this.#become("waiting", reasonFor("lost", "", ms));
    } else if (state === "waiting") this.#wait("offline", "");
  }
  // The token
  #planRefresh() {
    const ms = this.#tokens.refreshInMs(this.now(), this.random);
    if (ms !== null) this.#refreshIn(ms, 1);
  }
  #refreshIn(ms, failures) {
    this.#refreshing = this.clock.after(ms, () => void this.#refresh(failures));
  }
  async #refresh(failures) {
    const tokens = this.#tokens;
    const link = this.#link;
    try {
      const token = await tokens.renew("refresh", this.now());
      if (link !== this.#link || !link) return;
      if (token === null) return this.#stop(reasonFor("signed_out"), true);
      await this.ask("token.refresh", { token });
      if (link === this.#link) this.#planRefresh();
    } catch (error) {
      if (link !== this.#link) return;
      this.failed(error);
      if (!error.retry) return tokens.forget("refused");
      this.#refreshIn(RETRY_MS + backoff(failures, null, this.random), failures + 1);
    }
  }
};
function lost() {
  return Promise.reject(disconnected());
}
function addressOf(given) {
  try {
    const url = new URL(given, globalThis.location?.href);
    url.protocol = url.protocol.replace(/^http/, "ws");
    if (url.pathname === "/") url.pathname = "/v1/connect";
    if (/^wss?:/.test(url.href)) return url.href;
  } catch {
  }
  throw new GreendotError("bad_field", `invalid url ${JSON.stringify(given)}: use a URL like wss://example.com`);
}

// src/client.ts
var READS = { "notification.updated": [1, 2] };
var ROOM = "room:";
var version = false ? "0.0.0" : "0.1.0";
var Greendot = class {
  /** Presence of other users. */
  presence;
  /** The user's notifications. */
  inbox;
  status = {
    /** Set the user's own status on all devices. It ends at `until`. Returns the user's new presence. */
    set: async (wanted) => {
      const { status, until = null, text = null } = wanted;
      const fold = (reply) => this.presence.heard(reply.presence);
      const fields = { status, until: until === null ? null : Number(until), text };
      return (await this.#session.deliver("status", "status.set", fields, fold)).presence;
    }
  };
  privacy = {
    /** Hide the user's last-seen time, or hide the user from some users. Omitted fields keep their value. Returns all settings. */
    set: (wanted) => this.#session.deliver("privacy", "privacy.set", wanted),
    get: () => this.#session.deliver("privacy", "privacy.set")
  };
  #options;
  #session;
  #rooms = /* @__PURE__ */ new Map();
  #activity;
  #unlisten = [];
  constructor(options) {
    if (options.device !== void 0) validId("device", options.device);
    this.#options = options;
    this.#session = new Session(options, {
      hello: (token, owner) => this.#hello(token, owner),
      event: (frame) => this.#received(frame),
      lost: () => this.#lost(),
      closed: (error) => this.#closed(error)
    });
    this.#activity = new Activity(this.#session.clock, () => this.#session.tell("activity"));
    this.presence = new People(this.#session);
    this.inbox = new Inbox(this.#session);
  }
  get state() {
    return this.connection.state;
  }
  /** The reason why the client is not online, or null. */
  get reason() {
    return this.connection.reason;
  }
  /** State and reason. A new object after each change; `on("state")` delivers it. */
  get connection() {
    return this.#session.connection;
  }
  /** The server's last `welcome`; null before the first one. */
  get welcome() {
    return this.#session.welcome;
  }
  /** The user of the token; null before the first welcome. */
  get user() {
    return this.welcome?.user ?? null;
  }
  /** Number of commands that wait to be sent, or for their answer. */
  get queued() {
    return this.#session.outbox.size;
  }
  /** Connect, and stay connected. In state `waiting` or `offline`, make the next attempt now. */
  connect() {
    const { page } = this.#session;
    if (!this.#unlisten.length && page) this.#listen(page);
    this.#session.connect();
  }
  /**
   * Close the connection and reject commands that wait. The user may go offline at once. With `{ bye: false }` the
   * server waits some seconds for this device to return. `connect()` starts again, with the same rooms and watches.
   */
  close({ bye = true } = {}) {
    this.#session.close(bye);
  }
  /** Call `listener` with every event of this type. Returns a function that removes the listener. */
  on(type, listener) {
    return this.#session.events.on(type, listener);
  }
  /** Return the room of this name, always the same object. `Body` is the type of message bodies. */
  room(name) {
    const known = this.#rooms.get(name) ?? new Room(this.#session, validId("room", name));
    this.#rooms.set(name, known);
    return known;
  }
  /** List the rooms of which the user is a member and the open rooms, with their unread counts. */
  async rooms() {
    return (await this.#session.deliver(/* @__PURE__ */ Symbol(), "room.list")).rooms;
  }
  signal(user, kind, body, options) {
    return this.#session.signal({ user, kind, body }, options);
  }
  /** Report that the user is active. Pages call it automatically. Throttled. */
  active() {
    this.#activity.active();
  }
  /** Return the estimated time of the server, for `lastSeenText`. */
  now() {
    return this.#session.now();
  }
  /** Send any command of the protocol and return the data of its reply. Without a connection: `disconnected`. */
  request(type, fields = {}) {
    return this.#session.ask(type, fields);
  }
  async #hello(token, owner) {
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
      device: this.#options.device ?? await this.#session.cursors.device(() => `js-${newKey()}`),
      client: this.#options.client ?? { name: "greendot-js", version },
      supports: READS,
      resume: resumes ? { session: before?.session, rooms, inbox: inbox ?? void 0 } : void 0
    };
  }
  /** Discard all data of the previous user: another user is signed in. */
  #forget() {
    this.#session.welcome = null;
    for (const room of this.#rooms.values()) room.forget();
    this.presence.forget();
    this.inbox.forget();
  }
  #received(frame) {
    const { type, trace } = frame;
    const data = frame.data;
    this.#session.events.emit("event", frame);
    if (type === "welcome") this.#welcomed(data);
    else if (type === "presence.changed") this.presence.heard(data);
    else if (type.startsWith("notification.") || type === "inbox.badge") this.inbox.heard(type, data);
    else if (type === "resync") this.#missed(data.scope);
    else if (type === "refresh") this.#unread(data.of);
    else if (data.room) this.#rooms.get(data.room)?.heard(type, data, trace);
    if (type === "signal") this.#session.events.emit("signal", data);
  }
  /** Restore watches, rooms and inbox on the new link, then send the commands that wait. */
  #welcomed(welcome) {
    this.#activity.reset();
    this.presence.restore();
    for (const room of this.#rooms.values()) {
      room.restore(Object.hasOwn(welcome.rooms, room.name) ? welcome.rooms[room.name] : void 0);
    }
    this.inbox.restore();
    this.#session.outbox.flush();
    this.#session.events.emit("welcome", welcome);
  }
  #missed(scope) {
    if (scope.startsWith(ROOM)) this.#rooms.get(scope.slice(ROOM.length))?.missed();
    else this.inbox.missed();
  }
  /** Fetch the records of an event type that the server could not send to this version of the client. */
  #unread(of) {
    if (of === "notification.created") this.inbox.missed();
    else if (of === "room.message") for (const room of this.#rooms.values()) room.missed();
    else this.#session.events.emit("refresh", { of });
  }
  #lost() {
    for (const room of this.#rooms.values()) room.lost();
    this.inbox.lost();
  }
  #closed(error) {
    for (const undo of this.#unlisten.splice(0)) undo();
    for (const room of this.#rooms.values()) room.stop(error);
    this.inbox.lost();
    this.presence.stop();
    this.#activity.reset();
    this.#session.outbox.fail(error);
    this.#session.cursors.save();
  }
  #listen(page) {
    this.#unlisten.push(page.on("leave", () => this.#session.cursors.save()));
    if (this.#options.activity === false) return;
    for (const sign of ["activity", "visibility"]) {
      this.#unlisten.push(page.on(sign, () => page.isVisible() && this.active()));
    }
  }
};

// src/messages.ts
function showMessages(shown, records, limit = Infinity, user = null) {
  const bySeq = new Map(shown.map((message) => [message.seq, message]));
  let news = false;
  const put = (message) => {
    news = true;
    bySeq.set(message.seq, message);
  };
  for (const record of [...records].sort((a, b) => a.seq - b.seq)) {
    const { seq, op, reactions = [], reacted = seq } = record;
    const erased = op === "erased";
    const known = bySeq.get(record.ref ?? seq);
    if (record.ref === null) {
      if (!known || erased && !known.deleted) {
        put({ ...record, edited: false, deleted: erased, changed: known?.changed ?? 0, reactions, reacted });
      } else if (reacted > known.reacted) put({ ...known, reactions, reacted });
    } else if (known && !known.deleted) {
      if (op === "react" || op === "unreact") {
        if (seq > known.reacted) put({ ...known, reactions: counted(known.reactions, record, user), reacted: seq });
      } else if (seq > known.changed) {
        if (op === "delete") put({ ...known, body: null, deleted: true, changed: seq, reactions: [] });
        else if (op === "edit") put({ ...known, body: record.body, edited: true, changed: seq });
      }
    }
  }
  return news ? [...bySeq.values()].sort((a, b) => a.seq - b.seq).slice(-limit) : shown;
}
function counted(reactions, { op, body, user }, me) {
  const { reaction } = body;
  const by = op === "react" ? 1 : -1;
  const known = reactions.find((one) => one.reaction === reaction) ?? { reaction, count: 0, mine: false };
  const next = { reaction, count: known.count + by, mine: user === me ? by > 0 : known.mine };
  const changed = reactions.map((one) => one === known ? next : one);
  return (reactions.includes(known) ? changed : [...changed, next]).filter(({ count }) => count > 0);
}

// src/text.ts
var ENGLISH = {
  one: "{0} is typing…",
  two: "{0} and {1} are typing…",
  several: "several people are typing…",
  some: { one: "someone is typing…", other: "{n} people are typing…" }
};
function typingText(names, count = names.length, { locale = "en", words = ENGLISH } = {}) {
  const all = Math.max(names.length, count);
  if (!all) return "";
  const form = all > 2 ? words.several : names.length < all ? words.some : all === 1 ? words.one : words.two;
  const text = typeof form === "string" ? form : form[new Intl.PluralRules(locale).select(all)] ?? form.other;
  return text.replace(/\{([01n])\}/g, (_, what) => what === "n" ? String(all) : names[Number(what)]);
}
var STEPS = [
  ["year", 365 * 864e5],
  ["month", 30 * 864e5],
  ["day", 864e5],
  ["hour", 36e5],
  ["minute", 6e4]
];
function lastSeenText(at, now, { locale = "en", justNow = "just now" } = {}) {
  if (at === null) return "";
  const passed = now - at;
  const step = STEPS.find(([, size]) => passed >= size);
  if (!step) return justNow;
  return new Intl.RelativeTimeFormat(locale).format(-Math.floor(passed / step[1]), step[0]);
}
function lastSeenNext(at, now) {
  if (at === null) return null;
  const passed = Math.max(now - at, 0);
  const index = STEPS.findIndex(([, size2]) => passed >= size2);
  const size = index < 0 ? 6e4 : STEPS[index][1];
  const next = size - passed % size;
  const larger = index > 0 ? STEPS[index - 1][1] - passed : Infinity;
  return Math.min(next, larger) + Math.max(at - now, 0);
}
export {
  Greendot,
  GreendotError,
  REASONS,
  lastSeenNext,
  lastSeenText,
  localStore,
  memoryStore,
  newKey,
  showMessages,
  typingText
};
