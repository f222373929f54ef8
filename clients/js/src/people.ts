// Presence of watched users. An entry never goes back to an older version, and a status expires by itself.

import { attempt } from "./emitter.js";
import type { GreendotError } from "./errors.js";
import { validId } from "./ids.js";
import { BATCH, POLL_MS } from "./limits.js";
import type { Undo } from "./options.js";
import type { Session } from "./session.js";
import type { Presence } from "./wire.js";

type Listener = (entry: Presence) => void;

interface Entries {
  presence: Presence[];
}

/** Return whether `entry` is at least as new as `known`. */
export function isNewer(entry: Presence, known: Presence | undefined): boolean {
  // Version 0 means no state: the server lost its data, or the user is now hidden from this one. If it counted as old,
  // the user would stay online here forever.
  return !known || entry.version === 0 || entry.version >= known.version;
}

/** Merge `entry` into `known`. An entry of an equal version may lack devices: change events do not carry them. */
export function merge(entry: Presence, known: Presence | undefined): Presence {
  // The server is restoring lost records, so its `offline` is not reliable. The known state stays.
  if (known?.version && entry.stale && entry.version === 0 && entry.state === "offline") return { ...known, stale: true };
  return entry.devices || !known?.devices || entry.version !== known.version ? entry : { ...entry, devices: known.devices };
}

/** Return `entry` at the time `now`: a status ends at its `until`, even without an event. */
export function aged(entry: Presence, now: number): Presence {
  if (!entry.until || entry.until > now) return entry;
  return { ...entry, status: "auto", until: null, status_text: null, state: entry.state === "busy" ? "online" : entry.state };
}

/** `client.presence`: presence of other users. */
export class People {
  #session: Session;
  #watchers = new Map<string, Set<{ call: Listener }>>(); // user → listeners
  #known = new Map<string, Presence>();
  #said = new Set<string>(); // users that the server watches for this connection
  #planned = false;
  #polling: Undo | null = null;
  #ageing = new Map<string, Undo>();

  constructor(session: Session) {
    this.#session = session;
  }

  /**
   * Watch users: `listener` is called with the entry of each user as soon as it is known, then with every change.
   * Watches are counted: a user is watched until every watch is undone. All watches of one turn are one command.
   */
  watch(users: string | Iterable<string>, listener: Listener = () => {}): Undo {
    const wanted = new Set(listed(users));
    const entry = { call: listener };
    for (const user of wanted) this.#watchers.set(user, (this.#watchers.get(user) ?? new Set()).add(entry));
    this.#plan();
    // Deliver known entries after this function has returned, like later ones.
    queueMicrotask(() => {
      for (const user of wanted) {
        const known = this.#known.get(user);
        if (known && this.#watchers.get(user)?.has(entry)) attempt(listener, known, this.#session._threw);
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
  of(user: string): Presence | undefined {
    return this.#known.get(user);
  }

  /** Fetch the presence of these users, in this order, watched or not. */
  async get(users: string | Iterable<string>): Promise<Presence[]> {
    const pages = batches(listed(users)).map((batch) => {
      return this.#session._queue<Entries>(Symbol(), "presence.get", { users: batch }, this.#learn);
    });
    return (await Promise.all(pages)).flatMap(({ presence }) => presence);
  }

  /** @internal Process an entry of an event or an answer. */
  _received(entry: Presence): void {
    const known = this.#known.get(entry.user);
    if (!this.#watchers.has(entry.user) || !isNewer(entry, known)) return;
    const shown = aged(merge(entry, known), this.#session.now());
    this.#still(entry.user);
    if (shown.until) this.#ageing.set(entry.user, this.#session._clock.after(shown.until - this.#session.now(), () => this._received(shown)));
    if (shown.mode === "poll") this.#poll();
    if (known && JSON.stringify(known) === JSON.stringify(shown)) return;
    this.#known.set(entry.user, shown);
    this.#session._events.emit("presence", shown);
    for (const { call } of [...(this.#watchers.get(entry.user) ?? [])]) attempt(call, shown, this.#session._threw);
  }

  /** @internal Watch all users again on a new connection. */
  _restore(): void {
    this.#said.clear();
    this.#reconcile();
  }

  /** @internal Discard the entries of the previous user: visibility differs between users. */
  _forget(): void {
    this.#known.clear();
  }

  #plan(): void {
    if (this.#planned) return;
    this.#planned = true;
    queueMicrotask(() => this.#reconcile());
  }

  /** Send `watch` and `unwatch` for the difference between the server's watches and the listeners. */
  #reconcile(): void {
    this.#planned = false;
    for (const user of this.#known.keys()) {
      if (this.#watchers.has(user)) continue;
      this.#known.delete(user);
      this.#still(user);
    }
    if (!this.#session.online) return;
    const gone = [...this.#said].filter((user) => !this.#watchers.has(user));
    const fresh = [...this.#watchers.keys()].filter((user) => !this.#said.has(user));
    for (const user of gone) this.#said.delete(user);
    for (const user of fresh) this.#said.add(user);
    for (const users of batches(gone)) this.#session._trySend("unwatch", { users });
    for (const users of batches(fresh)) {
      this.#session.ask("watch", { users }, this.#learn).catch((error) => this.#refused(users, error));
    }
  }

  #still(user: string): void {
    this.#ageing.get(user)?.();
    this.#ageing.delete(user);
  }

  #learn = ({ presence }: Entries): void => presence.forEach((entry) => this._received(entry));

  #refused(users: string[], error: GreendotError): void {
    if (error.code === "disconnected") return; // the next connection watches again
    for (const user of users) this.#said.delete(user);
    this.#session._failed(error);
  }

  /**
   * Fetch the users in mode `poll` later: the server does not send their changes. With jitter, because the watchers of a
   * user get the mode together, and must not read together.
   */
  #poll(): void {
    this.#polling ??= this.#session._clock.after(POLL_MS * (0.5 + this.#session._random()), () => {
      const users = [...this.#known.values()].filter(({ mode }) => mode === "poll").map(({ user }) => user);
      this.#polling = null;
      if (users.length) this.#poll();
      if (users.length && this.#session.online && this.#session.visible) this.get(users).catch(() => {});
    });
  }

  /** @internal */
  _stop(): void {
    this.#polling?.();
    this.#polling = null;
    for (const user of this.#ageing.keys()) this.#still(user);
    this.#said.clear();
  }
}

function listed(users: string | Iterable<string>): string[] {
  const list = typeof users === "string" ? [users] : [...users];
  for (const user of list) validId("user", user);
  return list;
}

function batches(users: string[]): string[][] {
  return users.length ? [users.slice(0, BATCH), ...batches(users.slice(BATCH))] : [];
}
