// The user's inbox: new notifications, marks and badge.

import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import { PAGE } from "./limits.js";
import type { InboxEvents, Undo } from "./options.js";
import type { Session } from "./session.js";
import { Stream } from "./stream.js";
import type { Badge, InboxEntry, InboxFilter, InboxPage, Notification } from "./wire.js";

/** Ids of entries, or all entries up to and including a number. */
export type Marks = string | readonly string[] | { through: number };

/** `client.inbox`: the user's notifications. Marks wait for a connection. */
export class Inbox {
  /** Number of unread notifications, over all devices. */
  unread = 0;
  /** Number of unseen notifications, over all devices. */
  unseen = 0;
  #core: Session;
  #events: Emitter<InboxEvents>;
  #stream: Stream<Notification>;
  #untold: [number, number][] = []; // ranges of numbers that were not delivered to this program, first and last
  #reminded = new Set<number>(); // numbers of these ranges that were delivered later

  /** @internal */
  constructor(core: Session) {
    this.#core = core;
    this.#events = new Emitter<InboxEvents>(core._threw, { created: 1, updated: 1, badge: 1, resync: 1 });
    this.#stream = new Stream({
      head: async () => (await this.#page({ limit: 1 })).head,
      page: async (after) => (await this.#page({ after, limit: PAGE })).notifications.map(created),
      _tell: (notification) => this.#tell(notification),
      gap: (gap) => {
        this.#untold.push([gap.after + 1, gap.head]);
        this.#events.emit("resync", gap);
      },
      _failed: core._failed,
      _moved: () => core._cursors._moveInbox(this.#stream.last),
    });
  }

  on<Type extends keyof InboxEvents>(type: Type, listener: (event: InboxEvents[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /** Fetch a page in ascending order: the oldest entries after `after`, else the newest entries (before `before`). */
  list<Body = unknown>(
    page: { after?: number; before?: number; limit?: number; filter?: InboxFilter } = {},
  ): Promise<InboxPage<Body>> {
    return this.#core._deliver<InboxPage<Body>>(Symbol(), "inbox.list", page, (reply) => this.#counted(reply));
  }

  seen(which: Marks): Promise<Badge> {
    return this.#mark("inbox.seen", which);
  }

  read(which: Marks): Promise<Badge> {
    return this.#mark("inbox.read", which);
  }

  archive(which: Marks): Promise<Badge> {
    return this.#mark("inbox.archive", which);
  }

  /** Acknowledge notifications. The server resends those with `ack: true` until then: up to ten times, and also at each connect. */
  ack(which: Marks): Promise<Badge> {
    return this.#mark("inbox.ack", which);
  }

  // Called by the client

  /** @internal */
  get _cursor(): number | null {
    return this.#stream.last;
  }

  /** @internal Start after the stored cursor: later notifications are delivered. */
  _begin(cursor: number | null): void {
    if (cursor !== null && this.#stream.last === null) this.#follow(cursor);
  }

  /** @internal Fetch the badge, and the number of the newest notification. A new client gets only later notifications. */
  _restore(): void {
    const since = this.#stream.last;
    const found = ({ head }: InboxPage) => {
      if (this.#stream.last === null) this.#follow(head);
      this.#stream._reach(head, since);
    };
    this.#page({ limit: 1 }, found).catch((error: GreendotError) => {
      if (error.code !== "disconnected") this.#core._failed(error);
    });
  }

  /** Fetch a page on this connection only. */
  #page(page: object, fold?: (page: InboxPage) => void): Promise<InboxPage> {
    return this.#core.ask<InboxPage>("inbox.list", page, (reply) => {
      this.#counted(reply);
      fold?.(reply);
    });
  }

  /** @internal */
  _lost(): void {
    this.#stream._restart();
  }

  /** @internal Discard the state of the previous user. */
  _forget(): void {
    this.#stream._forget();
    this.#untold = [];
    this.#reminded.clear();
  }

  /** @internal */
  _missed(): void {
    this.#stream._miss();
  }

  /** @internal */
  _heard(type: string, data: any): void {
    if (type === "inbox.badge") this.#counted(data);
    else if (type === "notification.updated") this.#events.emit("updated", data);
    else if (type === "notification.created") this.#created(data);
  }

  #created(notification: Notification): void {
    // The kind is not kept, or the notification is redelivered out of order.
    if (notification.seq <= 0 || this.#isReminder(notification)) return this.#tell(notification);
    if (this.#stream.last === null) this.#follow(notification.seq - 1);
    this.#stream._offer(notification);
  }

  /** Return whether this is a redelivery of a notification that was never delivered to this program. */
  #isReminder({ seq, ack }: Notification): boolean {
    if (!ack || this.#reminded.has(seq)) return false;
    // Before the head of the inbox is known, new and redelivered notifications cannot be distinguished.
    const isUntold = this.#stream.last === null || this.#untold.some(([first, last]) => first <= seq && seq <= last);
    if (isUntold) this.#reminded.add(seq);
    return isUntold;
  }

  #follow(last: number): void {
    this.#untold.push([1, last]);
    this.#stream._follow(last);
  }

  #tell(notification: Notification): void {
    this.#events.emit("created", notification);
    this.#core._events.emit("notification", notification);
  }

  #counted({ unread, unseen }: Badge): void {
    if (unread === this.unread && unseen === this.unseen) return;
    const badge = { unread, unseen };
    Object.assign(this, badge);
    this.#events.emit("badge", badge);
    this.#core._events.emit("badge", badge);
  }

  #mark(type: string, which: Marks): Promise<Badge> {
    const fields = "through" in Object(which) ? (which as object) : { ids: [which].flat() };
    return this.#core._deliver<Badge>("inbox", type, fields, (reply) => this.#counted(reply));
  }
}

/** Convert an entry of a page to the notification that an event would carry. */
function created({ seq, id, kind, body, created_at, ack }: InboxEntry): Notification {
  return { seq, id, kind, body, created_at, ack };
}
