// Staying connected: one link after another, each brought to where the last one was.
//
//   connecting ──► connected ──► waiting ──► connecting …
//        └──────────────┴────► stopped (a close code 4500–4999, or a token that is not given)

import { Link, Lost, Refused } from "./link.js";

const BASE_MS = 500;
const CAP_MS = 30_000;
const LONGEST_HINT_MS = 300_000; // a wrong wish of the server must not send a page away for a day
const STEADY_MS = 5_000; // a connection that lasted so long was a good one: the next failure counts as the first
const LARGE_ROOM_MS = 5_000; // a join says how many type in a large room, not for how long
const BATCH = 400; // users of one watch: with the longest ids they still fit into a frame of 64 KiB

/** Another attempt would not change it. */
export class Stopped extends Error {}

/** How long to wait before the next attempt: full jitter, so that a crowd never returns as one. */
export function backoff(failures, hintMs = null, random = Math.random) {
  if (hintMs !== null) return Math.min(Math.max(hintMs, 0), LONGEST_HINT_MS) + random() * BASE_MS;
  return random() * Math.min(CAP_MS, BASE_MS * 2 ** failures);
}

export class Wire {
  state = { name: "connecting", failures: 0 };
  #options;
  #link = null;
  #attempt = 0; // the number of the attempt under way; whatever belongs to an older one is ignored
  #session = null;
  #watched = new Set();
  #fresh = []; // to be watched at the end of this turn, with one command for all
  #rooms = new Map(); // room → number of the newest message we have; null before the first join
  #failures = 0;
  #steadyAt = Infinity;
  #hintMs = null;
  #timer = null;
  #closed = false;
  #waiters = []; // who wants to know when there is a connection

  /**
   * `token` is a function that promises a token (Stopped if there is none to be had), `onState` hears of every state,
   * `onEvent` of every event. Snapshots of a watch come as `presence`, what a join returned as `room.joined`, and
   * `room.truncated` says that too much was missed: fetch again.
   */
  constructor({ url, token, device, onState, onEvent }) {
    this.#options = { url, token, device, onState, onEvent };
  }

  get connected() {
    return this.#link?.open ?? false;
  }

  /** Connect now, whatever was waited for. */
  start() {
    clearTimeout(this.#timer);
    if (!this.#closed && !this.#link) this.#connect();
  }

  /** The computer woke, the network is back, the tab is looked at: see to the connection. */
  wake() {
    if (this.#link) this.#link.probe();
    else if (this.state.name === "waiting") this.start();
  }

  /** End it for good and tell the server so. */
  close() {
    this.#closed = true;
    this.#attempt += 1;
    clearTimeout(this.#timer);
    const link = this.#link;
    this.#link = null;
    link?.bye();
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new Stopped("closed"));
  }

  /** Watch these users now and after every return. */
  watch(users) {
    const fresh = users.filter((user) => !this.#watched.has(user));
    for (const user of fresh) this.#watched.add(user);
    if (this.#fresh.length === 0) queueMicrotask(() => this.#watchFresh());
    this.#fresh.push(...fresh);
  }

  unwatch(user) {
    if (this.#watched.delete(user)) this.tell("unwatch", { users: [user] });
  }

  /** Be in this room now and after every return. */
  join(room) {
    if (this.#rooms.has(room)) return;
    this.#rooms.set(room, null);
    if (this.connected) this.#enter(this.#link, room).catch(ignore);
  }

  /** Say something that is worth nothing later. Whether it was said. */
  tell(type, fields) {
    return this.connected && this.#link.send(type, fields);
  }

  /** The answer; Lost without a connection, Refused if it is no. */
  async ask(type, fields) {
    if (!this.connected) throw new Lost("not connected");
    return this.#link.request(type, fields);
  }

  /** The answer, however many links it takes. Only for commands that may be said twice. */
  async deliver(type, fields) {
    for (;;) {
      await this.#connection();
      try {
        if (this.connected) return await this.#persist(this.#link, type, fields);
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
      }
    }
  }

  // One link after another

  async #connect() {
    const attempt = ++this.#attempt;
    this.#become({ name: "connecting" });
    let token;
    try {
      token = await this.#options.token();
    } catch (error) {
      if (attempt === this.#attempt) this.#failed(error instanceof Stopped ? error.message : null, error.message);
      return;
    }
    if (attempt !== this.#attempt) return;
    const hello = { token, device: this.#options.device, client: { name: "greendot-web", version: "1" } };
    if (this.#session) hello.resume = { session: this.#session, rooms: this.#cursors() };
    const link = (this.#link = new Link(
      this.#options.url,
      hello,
      (type, data) => link === this.#link && this.#received(link, type, data),
      (end) => link === this.#link && this.#ended(end),
    ));
  }

  #cursors() {
    return Object.fromEntries([...this.#rooms].filter(([, seq]) => seq !== null));
  }

  #ended({ code, reason, refusal }) {
    this.#link = null;
    if (Date.now() > this.#steadyAt) this.#failures = 0;
    this.#steadyAt = Infinity;
    if (refusal?.retry) this.#hintMs = refusal.retryInMs;
    const forbidden = (code >= 4500 && code <= 4999) || (refusal && !refusal.retry);
    this.#failed(forbidden ? reason || `the server closed the connection (${code})` : null, reason);
  }

  /** `stop` says why there will be no other attempt; null if there will. */
  #failed(stop, reason) {
    if (stop !== null) {
      this.#session = null;
      this.#become({ name: "stopped", reason: stop });
      return;
    }
    const wait = backoff(this.#failures, this.#hintMs);
    this.#failures += 1;
    this.#hintMs = null;
    this.#timer = setTimeout(() => this.start(), wait);
    this.#become({ name: "waiting", reason, until: Date.now() + wait });
  }

  #become(state) {
    this.state = { failures: this.#failures, ...state };
    this.#options.onState(this.state);
  }

  // What the server says

  #received(link, type, data) {
    if (type === "welcome") this.#welcomed(link, data);
    else if (type === "drain" || type === "overloaded") this.#hintMs = data.retry_in_ms;
    else if (type === "resync") this.#restore(link, { rooms: {} }).catch(ignore);
    else if (type === "room.message") this.#advance(data.room, data.seq);
    if (type !== "heartbeat.ack") this.#options.onEvent(type, data);
  }

  #welcomed(link, welcome) {
    this.#session = welcome.session;
    this.#steadyAt = Date.now() + STEADY_MS;
    this.#become({ name: "connected" });
    this.#restore(link, welcome).catch(ignore);
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
  }

  /** Watch and join again. The server has joined the rooms of the resume by itself; the rest is asked for. */
  async #restore(link, welcome) {
    const outside = [...this.#rooms.keys()].filter((room) => !(room in welcome.rooms));
    for (const [room, { head, truncated }] of Object.entries(welcome.rooms)) {
      if (truncated) this.#skip(room, head);
    }
    await Promise.all(outside.map((room) => this.#enter(link, room)));
    await this.#look(link, [...this.#watched]);
  }

  #watchFresh() {
    const users = this.#fresh.splice(0);
    if (this.connected && users.length) this.#look(this.#link, users).catch(ignore); // else the welcome will
  }

  async #look(link, users) {
    for (let at = 0; at < users.length; at += BATCH) await this.#lookAt(link, users.slice(at, at + BATCH));
  }

  async #lookAt(link, users) {
    const { presence } = await this.#persist(link, "watch", { users });
    for (const entry of presence) this.#options.onEvent("presence", entry);
  }

  async #enter(link, room) {
    const after = this.#rooms.get(room);
    const reply = await this.#persist(link, "room.join", after === null ? { room } : { room, after });
    const { onEvent } = this.#options;
    if (reply.truncated) this.#skip(room, reply.head);
    for (const message of reply.messages) onEvent("room.message", message);
    for (const typer of reply.typing) onEvent("typing.started", { room, ...typer });
    if (reply.typing_count > reply.typing.length) {
      onEvent("typing.count", { room, count: reply.typing_count, expires_in_ms: LARGE_ROOM_MS });
    }
    this.#advance(room, reply.head);
    onEvent("room.joined", reply);
  }

  #skip(room, head) {
    this.#rooms.set(room, head); // also back: the server may have lost what it had
    this.#options.onEvent("room.truncated", { room });
  }

  #advance(room, seq) {
    if (this.#rooms.has(room)) this.#rooms.set(room, Math.max(this.#rooms.get(room) ?? 0, seq));
  }

  /** Ask again as long as the server says “later”. */
  async #persist(link, type, fields) {
    for (;;) {
      try {
        return await link.request(type, fields);
      } catch (error) {
        if (!(error instanceof Refused) || !error.retry) throw error;
        await new Promise((done) => setTimeout(done, error.retryInMs));
      }
    }
  }

  #connection() {
    if (this.connected) return Promise.resolve();
    if (this.#closed) return Promise.reject(new Stopped("closed"));
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }
}

// What a lost link left undone is done by the next one; what was refused stays out of sight.
function ignore(error) {
  if (!(error instanceof Lost)) console.warn(`greendot: ${error.message}`);
}
