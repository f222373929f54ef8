// How people stand: watched while somebody wants to know, never shown older than known, ageing by themselves.

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

/** Whether `entry` is not older than what is `known`. */
export function isNewer(entry: Presence, known: Presence | undefined): boolean {
  // Version 0 is not an old state but none: the server restarted without its memory, or the user is hidden from us now.
  // Held to be old, it would leave them online here for ever.
  return !known || entry.version === 0 || entry.version >= known.version;
}

/** What is shown once `entry` is known besides `known`. An equal version may say more, or less: changes name no devices. */
export function merge(entry: Presence, known: Presence | undefined): Presence {
  // The server restores lost records and does not know: its `offline` is no fact, what was shown stays.
  if (known?.version && entry.stale && entry.version === 0 && entry.state === "offline") return { ...known, stale: true };
  return entry.devices || !known?.devices || entry.version !== known.version ? entry : { ...entry, devices: known.devices };
}

/** `entry` at `now`: a status that has ended is over, whether or not that was heard of. */
export function aged(entry: Presence, now: number): Presence {
  if (!entry.until || entry.until > now) return entry;
  return { ...entry, status: "auto", until: null, status_text: null, state: entry.state === "busy" ? "online" : entry.state };
}

/** `client.presence` */
export class People {
  #core: Session;
  #watchers = new Map<string, Set<{ call: Listener }>>(); // user → those who want to know
  #known = new Map<string, Presence>();
  #said = new Set<string>(); // whom the server was told to tell us of, on this connection
  #planned = false;
  #polling: Undo | null = null;
  #ageing = new Map<string, Undo>();

  constructor(core: Session) {
    this.#core = core;
  }

  /**
   * Follow these people: `listener` is called with each one's entry as soon as it is known, then with every change.
   * Counted: a person is followed until every watch is undone. All watches of one turn are one command.
   */
  watch(users: string | Iterable<string>, listener: Listener = () => {}): Undo {
    const wanted = new Set(listed(users));
    const entry = { call: listener };
    for (const user of wanted) this.#watchers.set(user, (this.#watchers.get(user) ?? new Set()).add(entry));
    this.#plan();
    // What is known already is told like what will be: not before this function has returned.
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

  /** What is known of somebody who is watched: never older than what was told; another object after each change. */
  of(user: string): Presence | undefined {
    return this.#known.get(user);
  }

  /** How these people stand now, in this order, watched or not. */
  async get(users: string | Iterable<string>): Promise<Presence[]> {
    const pages = batches(listed(users)).map((batch) => {
      return this.#core.deliver<Entries>(Symbol(), "presence.get", { users: batch }, this.#learn);
    });
    return (await Promise.all(pages)).flatMap(({ presence }) => presence);
  }

  /** @internal A change came, or an answer. */
  heard(entry: Presence): void {
    const known = this.#known.get(entry.user);
    if (!this.#watchers.has(entry.user) || !isNewer(entry, known)) return;
    const shown = aged(merge(entry, known), this.#core.now());
    this.#still(entry.user);
    if (shown.until) this.#ageing.set(entry.user, this.#core.clock.after(shown.until - this.#core.now(), () => this.heard(shown)));
    if (shown.mode === "poll") this.#polling ??= this.#core.clock.after(POLL_MS, () => this.#poll());
    if (known && JSON.stringify(known) === JSON.stringify(shown)) return;
    this.#known.set(entry.user, shown);
    this.#core.events.emit("presence", shown);
    for (const { call } of [...(this.#watchers.get(entry.user) ?? [])]) attempt(call, shown, this.#core.threw);
  }

  /** @internal A new connection knows nothing of whom the last one watched. */
  restore(): void {
    this.#said.clear();
    this.#reconcile();
  }

  /** @internal Another user is signed in: what one sees is not for the other. */
  forget(): void {
    this.#known.clear();
  }

  #plan(): void {
    if (this.#planned) return;
    this.#planned = true;
    queueMicrotask(() => this.#reconcile());
  }

  /** Tell the server the difference between whom it tells us of and whom somebody wants to know of. */
  #reconcile(): void {
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

  #still(user: string): void {
    this.#ageing.get(user)?.();
    this.#ageing.delete(user);
  }

  #learn = ({ presence }: Entries): void => presence.forEach((entry) => this.heard(entry));

  #refused(users: string[], error: GreendotError): void {
    if (error.code === "disconnected") return; // the next connection watches again
    for (const user of users) this.#said.delete(user);
    this.#core.failed(error);
  }

  /** So many watch these that their changes are not told. */
  #poll(): void {
    const users = [...this.#known.values()].filter(({ mode }) => mode === "poll").map(({ user }) => user);
    this.#polling = users.length ? this.#core.clock.after(POLL_MS, () => this.#poll()) : null;
    if (users.length && this.#core.online && this.#core.visible) this.get(users).catch(() => {});
  }

  /** @internal */
  stop(): void {
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
  return Array.from({ length: Math.ceil(users.length / BATCH) }, (_, at) => users.slice(at * BATCH, (at + 1) * BATCH));
}
