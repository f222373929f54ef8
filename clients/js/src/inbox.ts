// The user's inbox: its notifications, the commands that mark notifications, and the badge (the numbers of unread and of
// unseen notifications).

import { Emitter } from "./emitter.js";
import { GreendotError } from "./errors.js";
import { PAGE } from "./limits.js";
import type { InboxEvents, Undo } from "./options.js";
import type { Session } from "./session.js";
import { Stream } from "./stream.js";
import type { Badge, InboxEntry, InboxFilter, InboxPage, Notification } from "./wire.js";

/** Notifications to mark: one id, several ids, or all notifications up to and including the number `through`. */
export type Marks = string | readonly string[] | { through: number };

/**
 * `client.inbox`: the user's notifications. `seen`, `read`, `archive` and `ack` mark notifications on all devices of the
 * user. Without a connection, calls of these methods and of `list` wait for a connection.
 */
export class Inbox {
  /** Number of unread notifications, over all devices. */
  unread = 0;
  /** Number of unseen notifications, over all devices. */
  unseen = 0;
  #session: Session;
  #events: Emitter<InboxEvents>;
  #stream: Stream<Notification>; // delivers each notification once and in order, and fetches missing notifications
  // Ranges (first and last number) of notifications that the stream has skipped: those up to the number at which the stream
  // started, and those in a gap. The server sends a skipped notification again if it requires an acknowledgement.
  #skipped: [number, number][] = [];
  #redelivered = new Set<number>(); // numbers of skipped notifications that the server has sent again to this program

  /** @internal */
  constructor(session: Session) {
    this.#session = session;
    this.#events = new Emitter<InboxEvents>(session._threw, { created: 1, updated: 1, badge: 1, resync: 1 });
    this.#stream = new Stream({
      // Number of the newest notification.
      head: async () => (await this.#fetchPage({ limit: 1 })).head,
      page: async (after) => (await this.#fetchPage({ after, limit: PAGE })).notifications.map(created),
      _deliver: (notification) => this.#deliver(notification),
      // The stream skips notifications: too many are missing, or the server has lost some.
      gap: (gap) => {
        this.#skipped.push([gap.after + 1, gap.head]);
        this.#events.emit("resync", gap);
      },
      _failed: session._failed,
      // Store the number of the last delivered notification.
      _moved: () => session._cursors._moveInbox(this.#stream.last),
    });
  }

  /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
  on<Type extends keyof InboxEvents>(type: Type, listener: (event: InboxEvents[Type]) => void): Undo {
    return this.#events.on(type, listener);
  }

  /**
   * Fetch a page of at most `limit` notifications, in ascending order. By default, the pages have all notifications that are
   * not archived. `filter` selects only unread, only unseen or only archived notifications.
   *
   * - With `after`, the page starts directly after this number.
   * - With `before`, the page ends directly before this number.
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
   * Acknowledge notifications, and mark them as read and as seen. Some kinds of notifications have `ack: true`. The server
   * sends such a notification again until a device acknowledges it: up to ten times while the user is connected, and after
   * each connect.
   */
  ack(which: Marks): Promise<Badge> {
    return this.#mark("inbox.ack", which);
  }

  // Members that the client uses

  /** @internal Number of the last delivered notification, or null. At a reconnect, the server continues with the next notification. */
  get _cursor(): number | null {
    return this.#stream.last;
  }

  /**
   * @internal Start after the number `cursor` from the client's storage. Later notifications are events `created`. An earlier
   * notification is an event `created` only if it requires an acknowledgement, and the server sends it again.
   */
  _begin(cursor: number | null): void {
    if (cursor !== null && this.#stream.last === null) this.#follow(cursor);
  }

  /**
   * @internal On a new connection, fetch the badge and the number of the newest notification. A client without a number in
   * its storage starts after this notification. Other clients fetch the notifications that they lack.
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

  /**
   * Fetch a page. If the connection is lost, the call fails, and the client does not send the command again. `fold` receives
   * the page.
   */
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

  /** @internal Discard the data of the previous user, because another user has signed in. */
  _forget(): void {
    this.#stream._forget();
    this.#skipped = [];
    this.#redelivered.clear();
    this.#setBadge({ unread: 0, unseen: 0 });
  }

  /** @internal Fetch the notifications that the server has not sent on this connection, after its event `resync` or `refresh`. */
  _missed(): void {
    this.#stream._miss();
  }

  /** @internal Process an event of the server. */
  _received(type: string, data: any): void {
    if (type === "inbox.badge") this.#setBadge(data);
    else if (type === "notification.updated") this.#events.emit("updated", data);
    else if (type === "notification.created") this.#created(data);
  }

  /** Process the event of a notification. */
  #created(notification: Notification): void {
    // The stream delivers only notifications after its position. A skipped notification is before this position, so this method
    // delivers it.
    if (this.#isFirstDelivery(notification)) return this.#deliver(notification);
    if (this.#stream.last === null) this.#follow(notification.seq - 1);
    this.#stream._offer(notification);
  }

  /** Return whether this is a notification that the stream has skipped and that this program has not received before. */
  #isFirstDelivery({ seq, ack }: Notification): boolean {
    if (!ack || this.#redelivered.has(seq)) return false;
    // Until `_restore` knows the number of the newest notification, any notification may be a skipped one.
    const isSkipped = this.#stream.last === null || this.#skipped.some(([first, last]) => first <= seq && seq <= last);
    if (isSkipped) this.#redelivered.add(seq);
    return isSkipped;
  }

  /** Start the stream after the number `last`. Earlier notifications count as skipped. */
  #follow(last: number): void {
    this.#skipped.push([1, last]);
    this.#stream._follow(last);
  }

  /** Emit the event `created`. */
  #deliver(notification: Notification): void {
    this.#events.emit("created", notification);
    this.#session._events.emit("notification", notification);
  }

  /** Set the numbers of unread and unseen notifications. */
  #setBadge({ unread, unseen }: Badge): void {
    if (unread === this.unread && unseen === this.unseen) return;
    const badge = { unread, unseen };
    Object.assign(this, badge);
    this.#events.emit("badge", badge);
    this.#session._events.emit("badge", badge);
  }

  /** Send a command that marks notifications. Such commands are sent in the order of the calls. */
  #mark(type: string, which: Marks): Promise<Badge> {
    const fields = "through" in Object(which) ? (which as object) : { ids: [which].flat() };
    return this.#session._queue<Badge>("inbox", type, fields, (reply) => this.#setBadge(reply));
  }
}

/** Convert an entry of a page to a notification as in the event `created`: without the times of the marks. */
function created({ seq, id, kind, body, created_at, ack }: InboxEntry): Notification {
  return { seq, id, kind, body, created_at, ack };
}
