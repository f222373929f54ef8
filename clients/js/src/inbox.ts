// The user's inbox: what is new in it, what was marked, how much is unread.

import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import type { InboxEvents, Undo } from "./options.js";
import type { Session } from "./session.js";
import { PAGE, Stream } from "./stream.js";
import type { Badge, InboxEntry, InboxFilter, InboxPage, Notification } from "./wire.js";

/** Some entries by their ids, or all up to and including a number. */
export type Marks = string | readonly string[] | { through: number };

/** `client.inbox`: what the user must not miss. Marks wait for a connection. */
export class Inbox {
  /** How many are not read, on whichever device. */
  unread = 0;
  /** How many were not even seen. */
  unseen = 0;
  #core: Session;
  #events: Emitter<InboxEvents>;
  #stream: Stream<Notification>;
  #untold: [number, number][] = []; // numbers this program was not told, first and last
  #reminded = new Set<number>(); // those of them it was told late

  /** @internal */
  constructor(core: Session) {
    this.#core = core;
    this.#events = new Emitter(core.threw);
    this.#stream = new Stream({
      head: async () => (await this.#page({ limit: 1 })).head,
      page: async (after) => (await this.#page({ after, limit: PAGE })).notifications.map(created),
      tell: (notification) => this.#tell(notification),
      gap: (gap) => {
        this.#untold.push([gap.after + 1, gap.head]);
        this.#events.emit("resync", gap);
      },
      failed: (error) => core.failed(error),
      moved: () => core.cursors.moveInbox(this.#stream.last),
    });
  }

  on<Type extends keyof InboxEvents>(type: Type, listener: (event: InboxEvents[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /** A page in ascending order: the oldest after `after`, else the newest (before `before`). */
  list<Body = unknown>(
    page: { after?: number; before?: number; limit?: number; filter?: InboxFilter } = {},
  ): Promise<InboxPage<Body>> {
    return this.#core.deliver<InboxPage<Body>>(Symbol(), "inbox.list", page, (reply) => this.#counted(reply));
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

  /** Acknowledge: a notification with `ack` comes again until this is said. */
  ack(which: Marks): Promise<Badge> {
    return this.#mark("inbox.ack", which);
  }

  // What the client calls

  /** @internal */
  get cursor(): number | null {
    return this.#stream.last;
  }

  /** @internal With the cursor that was kept, what came since is told. */
  begin(cursor: number | null): void {
    if (cursor !== null && this.#stream.last === null) this.#follow(cursor);
  }

  /** @internal Find out where the inbox stands: how much is unread, and from which number on notifications are news. */
  restore(): void {
    const since = this.#stream.last;
    const found = ({ head }: InboxPage) => {
      if (this.#stream.last === null) this.#follow(head);
      this.#stream.reach(head, since);
    };
    this.#page({ limit: 1 }, found).catch((error: GreendotError) => {
      if (error.code !== "disconnected") this.#core.failed(error);
    });
  }

  /** A page, on this connection or not at all. */
  #page(page: object, fold?: (page: InboxPage) => void): Promise<InboxPage> {
    return this.#core.ask<InboxPage>("inbox.list", page, (reply) => {
      this.#counted(reply);
      fold?.(reply);
    });
  }

  /** @internal */
  lost(): void {
    this.#stream.restart();
  }

  /** @internal Another user is signed in. */
  forget(): void {
    this.#stream.forget();
    this.#untold = [];
    this.#reminded.clear();
  }

  /** @internal */
  missed(): void {
    this.#stream.miss();
  }

  /** @internal */
  heard(type: string, data: any): void {
    if (type === "inbox.badge") this.#counted(data);
    else if (type === "notification.updated") this.#events.emit("updated", data);
    else if (type === "notification.created") this.#created(data);
  }

  #created(notification: Notification): void {
    // Of a kind that is not kept; or one nobody has acknowledged, out of its turn.
    if (notification.seq <= 0 || this.#isReminder(notification)) return this.#tell(notification);
    if (this.#stream.last === null) this.#follow(notification.seq - 1);
    this.#stream.offer(notification);
  }

  /** Whether one that nobody has acknowledged is sent again, and this program was never told of it. */
  #isReminder({ seq, ack }: Notification): boolean {
    if (!ack || this.#reminded.has(seq)) return false;
    // Before it is known where the inbox stands, what is new cannot be told from what is sent again.
    const isUntold = this.#stream.last === null || this.#untold.some(([first, last]) => first <= seq && seq <= last);
    if (isUntold) this.#reminded.add(seq);
    return isUntold;
  }

  #follow(last: number): void {
    this.#untold.push([1, last]);
    this.#stream.follow(last);
  }

  #tell(notification: Notification): void {
    this.#events.emit("created", notification);
    this.#core.events.emit("notification", notification);
  }

  #counted({ unread, unseen }: Badge): void {
    if (unread === this.unread && unseen === this.unseen) return;
    const badge = { unread, unseen };
    Object.assign(this, badge);
    this.#events.emit("badge", badge);
    this.#core.events.emit("badge", badge);
  }

  #mark(type: string, which: Marks): Promise<Badge> {
    const fields = typeof which === "string" ? { ids: [which] } : isNumbered(which) ? which : { ids: which };
    return this.#core.deliver<Badge>("inbox", type, fields, (reply) => this.#counted(reply));
  }
}

function isNumbered(which: readonly string[] | { through: number }): which is { through: number } {
  return "through" in which;
}

/** A notification found in a page, as it would have been told. */
function created({ seq, id, kind, body, created_at, ack }: InboxEntry): Notification {
  return { seq, id, kind, body, created_at, ack };
}
