// The inbox as it is shown: its newest entries, and what became of them.

import type { Greendot, GreendotError, InboxEntry, InboxFilter, InboxPage, Marked, Notification, Undo } from "@greendot/client";
import { isListed, marked } from "./marks.js";
import { Shared } from "./shared.js";

const MOST_LISTED = 300; // the most a server gives at once

export interface InboxState<Body = unknown> {
  /** Ascending: the newest is the last. */
  notifications: readonly InboxEntry<Body>[];
  unread: number;
  unseen: number;
  /** Whether there may be entries before these. */
  hasOlder: boolean;
  loading: boolean;
  /** Why they could not be fetched the last time. */
  error: GreendotError | null;
}

export const EMPTY: InboxState<any> = Object.freeze({
  notifications: Object.freeze([]) as never,
  unread: 0,
  unseen: 0,
  hasOlder: false,
  loading: false,
  error: null,
});

export class InboxStore<Body> extends Shared<InboxState<Body>> {
  #client: Greendot;
  #filter: InboxFilter;
  #pageSize: number;
  #entries = new Map<number, InboxEntry<Body>>(); // by number, archived and read ones too
  #meanwhile: Marked[] = []; // marks that a page on its way may not know of
  #live = new Set<number>(); // notifications that came while a page was on its way: it may not have them
  #oldest = Infinity;
  #load = 0; // the number of the fetch under way; 0 if none is
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
      // What was marked on other devices while we were away is not told: the page is fetched again.
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
    // Those that were archived just now may never have been shown here.
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
    // Of a kind that is not kept, or one that comes again until it is acknowledged.
    if (notification.seq <= 0 || this.#entries.has(notification.seq)) return;
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
      // The newest page, fetched again, is as long as what is shown.
      const limit = before === undefined ? Math.min(Math.max(this.#pageSize, this.#entries.size), MOST_LISTED) : this.#pageSize;
      const page = await this.#client.inbox.list<Body>({ filter: this.#filter, limit, ...(before !== undefined && { before }) });
      if (load !== this.#load) return;
      this.#load = 0;
      if (before === undefined) this.#forgetUpTo(page.head);
      this.#take(page);
    } catch (error) {
      if (load !== this.#load) return;
      this.#load = 0;
      // Without a connection: the next welcome fetches it.
      const isLost = (error as GreendotError).code === "disconnected";
      this.#put({ loading: false, error: isLost ? null : (error as GreendotError) });
    }
  }

  /** What is not in the newest page, though it is not newer, was archived or read elsewhere; or can be fetched again. */
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
    // A page may be shorter than asked for; only one with nothing in it is the last.
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
