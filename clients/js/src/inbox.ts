// Inbox of the user: its notifications, and its badge. The badge is the number of unread notifications and the number of
// unseen notifications.

import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import { PAGE } from "./limits.js";
import type { InboxEvents, Undo } from "./options.js";
import type { Session } from "./session.js";
import { Stream } from "./stream.js";
import type { Badge, InboxEntry, InboxFilter, InboxPage, Notification } from "./wire.js";

/** Notifications to mark: one id, several ids, or all notifications up to and including the `seq` in `through`. */
export type Marks = string | readonly string[] | { through: number };

/**
 * `client.inbox`: the user's notifications. Each notification has a number, its `seq`. A later notification has a higher
 * `seq`.
 *
 * `seen`, `read`, `archive` and `ack` mark notifications, on all devices of the user. Without a connection, these methods and
 * `list` wait for a connection.
 */
export class Inbox {
  /** Number of unread notifications. It is the same on all devices of the user. */
  unread = 0;
  /** Number of unseen notifications. It is the same on all devices of the user. */
  unseen = 0;
  #session: Session;
  #events: Emitter<InboxEvents>;
  #stream: Stream<Notification>; // delivers each notification once and in order, and fetches missing notifications
  // Ranges of skipped notifications: first and last `seq`. The stream skips the notifications before its start, and the
  // notifications in a gap. If a skipped notification waits for an acknowledgement, the server sends it again.
  #skipped: [number, number][] = [];
  #redelivered = new Set<number>(); // `seq` of each skipped notification that the server has sent again

  /** @internal */
  constructor(session: Session) {
    this.#session = session;
    this.#events = new Emitter<InboxEvents>(session._threw, { created: 1, updated: 1, badge: 1, resync: 1 });
    this.#stream = new Stream({
      // Fetch the `seq` of the newest notification.
      head: async () => (await this.#fetchPage({ limit: 1 })).head,
      page: async (after) => (await this.#fetchPage({ after, limit: PAGE })).notifications.map(created),
      _deliver: (notification) => this.#deliver(notification),
      // If too many notifications are missing, or if the server has lost some, the stream skips to the newest notification.
      gap: (gap) => {
        this.#skipped.push([gap.after + 1, gap.head]);
        this.#events.emit("resync", gap);
      },
      _failed: session._failed,
      // Store the `seq` of the last delivered notification.
      _moved: () => session._cursors._moveInbox(this.#stream.last),
    });
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
  on<Type extends keyof InboxEvents>(type: Type, listener: (event: InboxEvents[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Fetch a page of at most `limit` notifications, in ascending order. By default, the pages have all notifications that are
   * not archived. With `filter`, the pages have only unread, only unseen or only archived notifications.
   *
   * - With `after`, the page has the next notifications after this `seq`.
   * - With `before`, the page has the last notifications before this `seq`.
   * - Without `after` and `before`, the page has the newest notifications.
   *
   * A call with both `after` and `before` fails.
   */
  list<Body = unknown>(
    page: { after?: number; before?: number; limit?: number; filter?: InboxFilter } = {},
  ): Promise<InboxPage<Body>> {
    return this.#session._queue<InboxPage<Body>>(Symbol(), "inbox.list", page, (reply) => this.#setBadge(reply));
  }

  /** Mark notifications as seen: the user has opened a list with these notifications. */
  seen(which: Marks): Promise<Badge> {
    return this.#mark("inbox.seen", which);
  }

  /** Mark notifications as read, and as seen. */
  read(which: Marks): Promise<Badge> {
    return this.#mark("inbox.read", which);
  }

  /**
   * Archive notifications, and mark them as read and as seen. `list` returns archived notifications only with the filter
   * `archived`.
   */
  archive(which: Marks): Promise<Badge> {
    return this.#mark("inbox.archive", which);
  }

  /**
   * Acknowledge notifications, and mark them as read and as seen.
   *
   * If a notification has `ack: true`, it waits for an acknowledgement. While it waits, the server sends it to each device
   * that connects, and repeats it to the connected devices. Each node (server process) stops after ten repetitions, and begins
   * again when a device connects to this node.
   */
  ack(which: Marks): Promise<Badge> {
    return this.#mark("inbox.ack", which);
  }

  // Members that the client uses

  /** @internal `seq` of the last delivered notification, or null. On a new connection, the server continues after it. */
  get _cursor(): number | null {
    return this.#stream.last;
  }

  /** @internal Start after the `seq` in `cursor`, which is from the client's storage. */
  _begin(cursor: number | null): void {
    if (cursor !== null && this.#stream.last === null) this.#follow(cursor);
  }

  /**
   * @internal On a new connection, fetch the badge and the `seq` of the newest notification. If the stream has not started,
   * it starts after this notification. Otherwise, it fetches the missing notifications.
   */
  _restore(): void {
    const since = this.#stream.last;
    const found = ({ head }: InboxPage) => {
      if (this.#stream.last === null) this.#follow(head);
      this.#stream._reach(head, since);
    };
    this.#fetchPage({ limit: 1 }, found).catch((error: GreendotError) => {
      if (error.code !== "disconnected") this.#session._failed(error);
    });
  }

  /** Fetch a page of notifications, and pass the page to `fold`. If the connection is lost, the call fails. */
  #fetchPage(page: object, fold?: (page: InboxPage) => void): Promise<InboxPage> {
    return this.#session.ask<InboxPage>("inbox.list", page, (reply) => {
      this.#setBadge(reply);
      fold?.(reply);
    });
  }

  /** @internal Process the loss of the connection. */
  _lost(): void {
    this.#stream._restart();
  }

  /** @internal After another user has signed in, discard the data of the previous user. */
  _forget(): void {
    this.#stream._forget();
    this.#skipped = [];
    this.#redelivered.clear();
    this.#setBadge({ unread: 0, unseen: 0 });
  }

  /**
   * @internal Fetch missing notifications. The events `resync` and `refresh` report that the server has not sent all
   * notifications.
   */
  _missed(): void {
    this.#stream._miss();
  }

  /** @internal Process an event of the server. */
  _received(type: string, data: any): void {
    if (type === "inbox.badge") this.#setBadge(data);
    else if (type === "notification.updated") this.#events.emit("updated", data);
    else if (type === "notification.created") this.#created(data);
  }

  #created(notification: Notification): void {
    // The stream does not deliver skipped notifications. So this method delivers them.
    if (this.#isFirstDelivery(notification)) return this.#deliver(notification);
    if (this.#stream.last === null) this.#follow(notification.seq - 1);
    this.#stream._offer(notification);
  }

  /** Return whether the stream has skipped this notification, and the server has not sent the notification again before. */
  #isFirstDelivery({ seq, ack }: Notification): boolean {
    if (!ack || this.#redelivered.has(seq)) return false;
    // Before the stream has started, each notification counts as skipped.
    const isSkipped = this.#stream.last === null || this.#skipped.some(([first, last]) => first <= seq && seq <= last);
    if (isSkipped) this.#redelivered.add(seq);
    return isSkipped;
  }

  /** Start the stream after the `seq` in `last`. Notifications up to this `seq` count as skipped. */
  #follow(last: number): void {
    this.#skipped.push([1, last]);
    this.#stream._follow(last);
  }

  #deliver(notification: Notification): void {
    this.#events.emit("created", notification);
    this.#session._events.emit("notification", notification);
  }

  #setBadge({ unread, unseen }: Badge): void {
    if (unread === this.unread && unseen === this.unseen) return;
    const badge = { unread, unseen };
    Object.assign(this, badge);
    this.#events.emit("badge", badge);
    this.#session._events.emit("badge", badge);
  }

  /** Send a command that marks notifications. The client sends these commands in the order of the calls. */
  #mark(type: string, which: Marks): Promise<Badge> {
    const fields = "through" in Object(which) ? (which as object) : { ids: [which].flat() };
    return this.#session._queue<Badge>("inbox", type, fields, (reply) => this.#setBadge(reply));
  }
}

/** Convert an entry of a page to the data of the event `created`. An entry also has the times of its marks. */
function created({ seq, id, kind, body, created_at, ack }: InboxEntry): Notification {
  return { seq, id, kind, body, created_at, ack };
}
