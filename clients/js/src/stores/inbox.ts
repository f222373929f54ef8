// The inbox: its newest entries with their marks, and the actions on them.

import type { Greendot, GreendotError, InboxEntry, InboxFilter, InboxPage, Marked, Marks, Notification, Undo } from "../index.js";
import { isListed, marked } from "./marks.js";
import { ignorable, Shared, sharedSource, shelfOf, type Source } from "./shared.js";

const MOST_LISTED = 300; // the server's maximum per page

/** State of an inbox. */
export interface InboxState<Body = unknown> {
  /** Notifications. The newest is the last one. */
  notifications: readonly InboxEntry<Body>[];
  /** Number of unread notifications in the whole inbox. */
  unread: number;
  /** Number of unseen notifications in the whole inbox. */
  unseen: number;
  /** Whether the server may have older notifications. */
  hasOlder: boolean;
  /** Whether the client is fetching notifications. */
  loading: boolean;
  /** Error of the last fetch, or null. */
  error: GreendotError | null;
}

/** Options of an inbox. If several components use the same `filter`, the `pageSize` of the first component applies. */
export interface InboxOptions {
  /** Notifications to show; by default all notifications that are not archived. */
  filter?: InboxFilter;
  /** Number of notifications per fetch: by default 50, at most 300. */
  pageSize?: number;
}

/** Actions of an inbox, from `inboxActions`. */
export interface InboxActions {
  /** Fetch a page of older notifications. They are then at the start of `notifications`. */
  loadOlder(): Promise<void>;
  /** Mark notifications as seen: the user has opened a list with these notifications. */
  markSeen(which: Marks): Promise<void>;
  /** Mark notifications as read, and as seen. */
  markRead(which: Marks): Promise<void>;
  /** Archive notifications, and mark them as read and as seen. */
  archive(which: Marks): Promise<void>;
  /**
   * Acknowledge notifications, and mark them as read and as seen.
   *
   * If a notification has `ack: true`, it waits for an acknowledgement. While it waits, the server sends it to each device
   * that connects, and repeats it to the connected devices. Each node (server process) stops after ten repetitions, and begins
   * again when a device connects to this node.
   */
  ack(which: Marks): Promise<void>;
}

const EMPTY: InboxState<any> = Object.freeze({
  notifications: Object.freeze([]) as never,
  unread: 0,
  unseen: 0,
  hasOlder: false,
  loading: false,
  error: null,
});

class InboxStore<Body> extends Shared<InboxState<Body>> {
  #client: Greendot;
  #filter: InboxFilter;
  #pageSize: number;
  #entries = new Map<number, InboxEntry<Body>>(); // by number, including archived and read entries
  #meanwhile: Marked[] = []; // marks made during a fetch; the fetched page may lack these marks
  #live = new Set<number>(); // notifications that came during a fetch; the fetched page may lack these notifications
  #oldest = Infinity;
  #load = 0; // number of the current fetch; 0 if there is none
  #loads = 0;
  #user: string | null;

  constructor(client: Greendot, filter: InboxFilter, pageSize: number) {
    super({ ...EMPTY, unread: client.inbox.unread, unseen: client.inbox.unseen });
    this.#client = client;
    this.#filter = filter;
    this.#pageSize = pageSize;
    this.#user = client.user;
  }

  protected override follow(): Undo[] {
    const { inbox } = this.#client;
    if (this.#client.state === "online") void this.#fetch();
    return [
      inbox.on("created", (notification) => this.#created(notification)),
      inbox.on("updated", (mark) => this.marked(mark)),
      inbox.on("badge", ({ unread, unseen }) => this.#put({ unread, unseen })),
      inbox.on("resync", () => void this.#fetch()),
      // Marks made on other devices during a disconnect cause no event, so fetch the page again.
      this.#client.on("welcome", ({ user }) => this.#welcomed(user)),
      () => (this.#load = 0),
    ];
  }

  async loadOlder(): Promise<void> {
    if (!this.#load && this.value.hasOlder) await this.#fetch(this.#oldest);
  }

  marked(mark: Marked): void {
    if (this.#load) this.#meanwhile.push(mark);
    this.#apply(mark);
    // An archived notification may be missing in `#entries`.
    if (this.#filter === "archived" && mark.state === "archived") void this.#fetch();
    this.#show();
  }

  #welcomed(user: string): void {
    if (this.#user !== null && this.#user !== user) this.#entries.clear();
    this.#user = user;
    this.#show();
    void this.#fetch();
  }

  #created(notification: Notification<Body>): void {
    if (this.#entries.has(notification.seq)) return; // the server has sent the notification again
    if (this.#load) this.#live.add(notification.seq);
    this.#entries.set(notification.seq, { ...notification, seen_at: null, read_at: null, archived_at: null, acked_at: null });
    this.#show();
  }

  async #fetch(before?: number): Promise<void> {
    const load = (this.#load = ++this.#loads);
    this.#meanwhile = [];
    this.#live.clear();
    this.#put({ loading: true, error: null });
    try {
      // Fetch at least as many entries as are shown.
      const limit = before === undefined ? Math.min(Math.max(this.#pageSize, this.#entries.size), MOST_LISTED) : this.#pageSize;
      const page = await this.#client.inbox.list<Body>({ filter: this.#filter, limit, ...(before !== undefined && { before }) });
      if (load !== this.#load) return;
      this.#load = 0;
      if (before === undefined) this.#forgetUpTo(page.head);
      this.#take(page);
    } catch (error) {
      if (load !== this.#load) return;
      this.#load = 0;
      // After a lost connection, the next welcome fetches the page.
      const isLost = (error as GreendotError).code === "disconnected";
      this.#put({ loading: false, error: isLost ? null : (error as GreendotError) });
    }
  }

  /** Drop entries up to `head`. Entries that the newest page lacks were archived or read elsewhere, or can be fetched again. */
  #forgetUpTo(head: number): void {
    for (const seq of this.#entries.keys()) if (seq <= head && !this.#live.has(seq)) this.#entries.delete(seq);
    this.#oldest = Infinity;
  }

  #take({ notifications, unread, unseen }: InboxPage<Body>): void {
    for (const entry of notifications) {
      this.#entries.set(entry.seq, entry);
      this.#oldest = Math.min(this.#oldest, entry.seq);
    }
    for (const mark of this.#meanwhile.splice(0)) this.#apply(mark);
    this.#show();
    // A page may be shorter than requested. Only an empty page is the last one.
    this.#put({ loading: false, unread, unseen, hasOlder: notifications.length > 0 && this.#oldest > 1 });
  }

  #apply(mark: Marked): void {
    const now = this.#client.now();
    for (const [seq, entry] of this.#entries) this.#entries.set(seq, marked(entry, mark, now));
  }

  #show(): void {
    const listed = [...this.#entries.values()].filter((entry) => isListed(entry, this.#filter)).sort((a, b) => a.seq - b.seq);
    const { notifications } = this.value;
    const isSame = listed.length === notifications.length && listed.every((entry, at) => entry === notifications[at]);
    if (!isSame) this.#put({ notifications: listed });
  }

  #put(part: Partial<InboxState<Body>>): void {
    const news = Object.entries(part).some(([name, value]) => !Object.is(value, this.value[name as keyof InboxState]));
    if (news) this.become({ ...this.value, ...part });
  }
}

/** Return a source of the newest notifications, and of the numbers of unread and of unseen notifications. */
export function inboxSource<Body = unknown>(client: Greendot, { filter = "all", pageSize = 50 }: InboxOptions = {}): Source<InboxState<Body>> {
  return sharedSource<InboxState<Body>>(client, nameOf(filter), () => new InboxStore<Body>(client, filter, pageSize), EMPTY);
}

/**
 * Return the actions of an inbox. If an action marks notifications, for example as read, all inbox sources of the client show
 * the change. `loadOlder` adds notifications to the `inboxSource` with the same `filter`. Without a subscriber of this source,
 * `loadOlder` has no effect.
 */
export function inboxActions(client: Greendot, { filter = "all" }: InboxOptions = {}): InboxActions {
  return {
    loadOlder: async () => (shelfOf(client).find(nameOf(filter)) as InboxStore<unknown> | undefined)?.loadOlder(),
    markSeen: (which) => ignorable(mark(client, "seen", which)),
    markRead: (which) => ignorable(mark(client, "read", which)),
    archive: (which) => ignorable(mark(client, "archived", which)),
    ack: (which) => ignorable(mark(client, "acked", which)),
  };
}

const nameOf = (filter: InboxFilter): string => `inbox ${filter}`;

const COMMANDS = { seen: "seen", read: "read", archived: "archive", acked: "ack" } as const;

async function mark(client: Greendot, state: Marked["state"], which: Marks): Promise<void> {
  await client.inbox[COMMANDS[state]](which);
  const named = typeof which === "string" ? { ids: [which] } : "through" in which ? which : { ids: [...which] };
  // The server sends the mark to the user's other devices only.
  for (const store of shelfOf(client).all) if (store instanceof InboxStore) store.marked({ state, ...named });
}
