// Greendot server, as the backend of an app uses it.

import type {
  AuditEntry,
  Contact,
  Inbox,
  Member,
  Members,
  Message,
  Notification,
  Notified,
  Online,
  Operations,
  Presence,
  Present,
  Receipts,
  Restriction,
  RestrictionOptions,
  Revoked,
  Room,
  RoomSettings,
  Sent,
  SessionInfo,
  Typer,
  UserInfo,
} from "./api.js";
import { checkedId } from "./checks.js";
import { InvalidArgument, NotFound } from "./errors.js";
import { type AnswerOf, Http, type HttpOptions, type RequestOf, unreadable } from "./http.js";
import { type PrivateKey, randomHex, Signer, type TokenOptions } from "./tokens.js";
import { type HookDelivery, type HookHeaders, type HookOptions, verifyWebhook } from "./webhooks.js";

const PAGE = 1_000; // rooms, users or members in a page
const MOST_MESSAGES = 300; // in a page
const MOST_ASKED = 10_000; // users in one request

export interface ServerOptions extends HttpOptions {
  /** Secret that signs tokens: `auth.secret` of the server. */
  secret?: string;
  /** Private key that signs tokens, in place of `secret`. The server has the public key in `auth.keys` or `auth.jwks_url`. */
  privateKey?: PrivateKey;
  /** Id of the private key (`kid`), by which the server finds the public key. */
  keyId?: string;
  /** Secret of the webhooks, or several while you replace it. */
  webhookSecret?: string | readonly string[];
}

/** Page of a list: at most `limit` entries, beginning after the name or number `after`. */
export interface Page<Key = string> {
  after?: Key;
  limit?: number;
}

/**
 * Fields for the audit: the person who makes a change, and the reason.
 *
 * Without `by`, the audit has the name of the API key. Clients see `by` as the author of an edit or deletion of a message.
 */
export interface Audit {
  by?: string;
  reason?: string;
}

/** Options of `notify`: `key`, the time when the notification expires, and the options of its push. */
export type NotificationOptions = Omit<Notification, "user" | "kind" | "body">;

/**
 * Greendot server for the backend of an app: `new Server({ url: "http://127.0.0.1:8000", apiKey, secret })`.
 *
 * Make one for each process. Temporary failures are retried, if the request cannot take effect twice. Refusals,
 * permanent failures and failures of the last retry throw a `ServerError`. Fields of requests and answers have their names from the HTTP API; times are
 * in milliseconds UTC.
 */
export class Server {
  readonly #options: ServerOptions;
  readonly #http: Http;
  #signer: Promise<Signer> | undefined;

  constructor(options: ServerOptions) {
    if (!options || typeof options !== "object") throw new InvalidArgument("pass the options of the server: new Server({ url, apiKey })");
    this.#options = options;
    this.#http = new Http(options);
  }

  /** Address of the server. */
  get url(): string {
    return this.#http.url;
  }

  /** Return the same server with other options, such as the signal or the timeout of one call. */
  with(options: Partial<ServerOptions>): Server {
    const other = new (this.constructor as typeof Server)({ ...this.#options, ...options });
    if (!("secret" in options || "privateKey" in options || "keyId" in options)) other.#signer = this.#signer;
    return other;
  }

  // --- without the network ---

  /** Return a token for a user, valid for `ttl` seconds: `await server.token("alice", { name: "Alice" })`. */
  async token(user: string, options: TokenOptions = {}): Promise<string> {
    const { secret, privateKey, keyId } = this.#options;
    this.#signer ??= privateKey === undefined ? Signer.ofSecret(secret) : Signer.ofPrivateKey(privateKey, keyId);
    return (await this.#signer).token(user, options);
  }

  /**
   * Return the content of a webhook if its signature is right and recent. Otherwise throw BadWebhook: answer the request with 400.
   *
   * `body` is the body of the request as it was received, `headers` are its headers or the value of `Greendot-Signature`.
   */
  async verifyWebhook(body: string | Uint8Array | ArrayBuffer, headers: HookHeaders, options: HookOptions = {}): Promise<HookDelivery> {
    return verifyWebhook(body, headers, this.#options.webhookSecret ?? [], options);
  }

  // --- users ---

  /** Return the presence of users, in the same order. More than 10,000 users take several requests. */
  async presence(users: Iterable<string>): Promise<Presence[]> {
    const wanted = typeof users === "string" ? [users] : [...users];
    const found: Presence[] = [];
    for (let start = 0; start < wanted.length; start += MOST_ASKED) {
      const body = { users: wanted.slice(start, start + MOST_ASKED) };
      for (const one of (await this.#call("POST /v1/presence/query", { body })).presence) found.push(one);
    }
    return found;
  }

  /** Return a page of online users, and their total number. */
  online(page: Page = {}): Promise<Online> {
    return this.#call("GET /v1/presence/online", { query: page });
  }

  /** Yield all online users, read page by page. Users who come or go meanwhile may or may not be included. */
  async *everybodyOnline(): AsyncGenerator<string, void> {
    let after: string | null | undefined;
    do {
      const page: Online = await this.online({ after: after ?? undefined, limit: PAGE });
      yield* page.users;
      after = page.next;
    } while (after);
  }

  /** Return the user's sessions on all nodes. */
  async sessions(user: string): Promise<SessionInfo[]> {
    return (await this.#call("GET /v1/users/{user}/sessions", { path: { user } })).sessions;
  }

  /** Close a session's connection (4503: the client does not reconnect). Return whether there was one. */
  async disconnect(session: string): Promise<boolean> {
    try {
      await this.#send("DELETE /v1/sessions/{session}", { path: { session } });
    } catch (error) {
      if (error instanceof NotFound) return false;
      throw error;
    }
    return true;
  }

  /** Set a user's status. It ends at `until`; without `until` it has no end. Return the user's presence. */
  async setStatus(user: string, status: "auto" | "busy" | "invisible", options: { until?: number; text?: string } = {}): Promise<Presence> {
    return (await this.#call("PUT /v1/users/{user}/status", { path: { user }, body: { ...options, status } })).presence;
  }

  /** Return the name and the info that are stored for a user. */
  info(user: string): Promise<UserInfo> {
    return this.#call("GET /v1/users/{user}/info", { path: { user } });
  }

  /** Set a user's name, info (at most 1,024 bytes as JSON), or both. Null removes a field. A field that you leave out stays unchanged. */
  setInfo(user: string, fields: { name?: string | null; info?: Record<string, unknown> | null }): Promise<UserInfo> {
    return this.#call("PUT /v1/users/{user}/info", { path: { user }, body: fields });
  }

  /** Remove a user's stored name and info. Tokens issued before do not set them again. */
  removeInfo(user: string): Promise<void> {
    return this.#send("DELETE /v1/users/{user}/info", { path: { user } });
  }

  /** Return how changes of a user's presence reach the watchers; `auto` if `setPresenceMode` was not called. */
  async presenceMode(user: string): Promise<"auto" | "live" | "poll"> {
    return (await this.#call("GET /v1/users/{user}/presence/mode", { path: { user } })).mode;
  }

  /**
   * Set how changes of a user's presence reach the watchers. When the call has returned, the mode is in effect on every node.
   *
   * `auto`: the number of watchers on a node decides. `live`: the server always sends changes. `poll`: it sends none, and
   * watchers request the presence from time to time.
   */
  async setPresenceMode(user: string, mode: "auto" | "live" | "poll"): Promise<void> {
    await this.#call("PUT /v1/users/{user}/presence/mode", { path: { user }, body: { mode } });
  }

  /**
   * Add `other` to the contacts of `user`, but not `user` to those of `other`.
   *
   * The time of their last contact is `last_contact_at`, by default now.
   */
  addContact(user: string, other: string, options: { last_contact_at?: number } = {}): Promise<Contact> {
    return this.#call("PUT /v1/users/{user}/contacts/{other}", { path: { user, other }, body: options });
  }

  /** Remove a contact. When the call has returned, the change is in effect on every node. */
  removeContact(user: string, other: string): Promise<void> {
    return this.#send("DELETE /v1/users/{user}/contacts/{other}", { path: { user, other } });
  }

  // --- revocation ---

  /**
   * Revoke every token of the user issued before now, or before `before`.
   *
   * When this call or another call that revokes tokens has returned, the revoked tokens and sessions receive nothing more. If the
   * call throws Unavailable, a node has not confirmed the revocation: call again.
   */
  async revokeUser(user: string, options: { before?: number } = {}): Promise<Revoked> {
    return this.#revoke({ before: options.before, user: checkedId("user", user) });
  }

  /**
   * Revoke the token with this `jti`.
   *
   * Pass the user and the expiry of the token if your backend knows them. Then the call waits only for the nodes of this user, and the
   * server keeps the revocation only until the expiry.
   */
  async revokeToken(jti: string, options: { user?: string; expires_at?: number } = {}): Promise<Revoked> {
    // A request with `user` but without `jti` would revoke all tokens of the user.
    if (typeof jti !== "string" || !jti) throw new InvalidArgument("jti is the id of a token: a text that is not empty");
    return this.#revoke({ user: options.user, expires_at: options.expires_at, jti });
  }

  /** Close the session, and revoke its token if the token has a `jti`. The session cannot be resumed. */
  async revokeSession(session: string): Promise<Revoked> {
    return this.#revoke({ session: checkedId("session", session) });
  }

  /** Revoke every token of the key's tenant issued before now, or before `before`. */
  revokeAll(options: { before?: number } = {}): Promise<Revoked> {
    return this.#revoke({ before: options.before, all: true });
  }

  // --- rooms ---

  /** Create a room, or change its settings. A setting that you leave out stays unchanged. A new room is for members only unless `open` is true. */
  putRoom(room: string, settings: RoomSettings = {}): Promise<Room> {
    return this.#call("PUT /v1/rooms/{room}", { path: { room }, body: settings });
  }

  /** Return the room. Throw NotFound if the room does not exist. */
  room(room: string): Promise<Room> {
    return this.#call("GET /v1/rooms/{room}", { path: { room } });
  }

  /** Return rooms in the order of their names. */
  async rooms(page: Page = {}): Promise<Room[]> {
    return (await this.#call("GET /v1/rooms", { query: page })).rooms;
  }

  /** Yield all rooms, read page by page. */
  async *everyRoom(): AsyncGenerator<Room, void> {
    let page: Room[] | undefined;
    do {
      page = await this.rooms({ after: page?.at(-1)?.room, limit: PAGE });
      yield* page;
    } while (page.length === PAGE);
  }

  /** Return members and their roles, in the order of user ids. */
  members(room: string, page: Page = {}): Promise<Members> {
    return this.#call("GET /v1/rooms/{room}/members", { path: { room }, query: page });
  }

  /** Yield all members, read page by page. */
  async *everyMember(room: string): AsyncGenerator<Member, void> {
    let after: string | null | undefined;
    do {
      const page: Members = await this.members(room, { after: after ?? undefined, limit: PAGE });
      for (const user of page.members) yield { room, user, role: page.roles[user]! };
      after = page.next;
    } while (after);
  }

  /** Add a member, or change a member's role. A `reader` only receives messages. An `admin` also edits and deletes messages of others. */
  addMember(room: string, user: string, role: "reader" | "member" | "admin" = "member"): Promise<Member> {
    return this.#call("PUT /v1/rooms/{room}/members/{user}", { path: { room, user }, body: { role } });
  }

  /**
   * Remove a member. When the call has returned, the user receives no more events of the room.
   *
   * If it throws Unavailable, a node has not confirmed the removal: call again.
   */
  removeMember(room: string, user: string): Promise<void> {
    return this.#send("DELETE /v1/rooms/{room}/members/{user}", { path: { room, user } });
  }

  /** Return the users who are in the room now, and their total number. */
  present(room: string, page: Page = {}): Promise<Present> {
    return this.#call("GET /v1/rooms/{room}/present", { path: { room }, query: page });
  }

  /** Return read receipts in the order of user ids. Throw NotFound if the room has no receipts (see `putRoom`). */
  receipts(room: string, page: Page = {}): Promise<Receipts> {
    return this.#call("GET /v1/rooms/{room}/receipts", { path: { room }, query: page }) as Promise<Receipts>;
  }

  /**
   * Return the number of users who have read message `seq`.
   *
   * Not counted: users who read it while invisible, who hide their last-seen time, or who hide from at least one other user.
   */
  async readers(room: string, seq: number): Promise<number> {
    const query = { seq };
    return ((await this.#call("GET /v1/rooms/{room}/receipts", { path: { room }, query })) as { count: number }).count;
  }

  /** Return the users who type in the room now. */
  async typing(room: string): Promise<Typer[]> {
    return (await this.#call("GET /v1/rooms/{room}/typing", { path: { room } })).typing;
  }

  /**
   * Send a message in the name of `user`. Return its id and number.
   *
   * `key` identifies the message: if two calls, from any process, have the same key, the server stores one message. Without
   * `key`, the SDK generates one for each call, so that the retries of the call store the message once.
   */
  async send(room: string, body: unknown, options: { user: string; name?: string; key?: string }): Promise<Sent> {
    const { user, name, key } = Object(options) as typeof options;
    const message = { user: checkedId("user", user), name, key: keyed(key), body };
    return this.#call("POST /v1/rooms/{room}/messages", { path: { room }, body: message });
  }

  /** Add a reaction of `user`, such as an emoji, to message `seq`. Return id and number of the stored reaction. */
  react(room: string, seq: number, reaction: string, { user }: { user: string }): Promise<Sent> {
    return this.#call("PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}", { path: { room, seq, reaction }, query: { user } });
  }

  /** Remove a reaction of `user`. Return id and number of the stored removal, or those of the message if there was no reaction. */
  unreact(room: string, seq: number, reaction: string, { user }: { user: string }): Promise<Sent> {
    return this.#call("DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}", { path: { room, seq, reaction }, query: { user } });
  }

  /**
   * Return at most 300 messages, in ascending order of their numbers.
   *
   * `after`: the first messages after this number. `before`: the last messages before this number. Neither: the newest
   * messages.
   */
  async messages<Body = unknown>(room: string, page: Page<number> & { before?: number } = {}): Promise<(Message & { body: Body })[]> {
    const { messages } = await this.#call("GET /v1/rooms/{room}/messages", { path: { room }, query: page });
    return messages as (Message & { body: Body })[];
  }

  /** Yield all messages after number `after`, oldest first, read page by page. */
  async *everyMessage<Body = unknown>(room: string, { after = 0 }: { after?: number } = {}): AsyncGenerator<Message & { body: Body }, void> {
    for (;;) {
      const page = await this.messages<Body>(room, { after, limit: MOST_MESSAGES });
      if (!page.length) return;
      yield* page;
      after = page.at(-1)!.seq;
    }
  }

  /**
   * Send a signal to the users in a room. It is not stored, and a lost signal is not sent again.
   *
   * `from` is the id that clients see as the sender, by default `system`. While a client reads slowly, signals for this
   * client wait in the server. A signal with a `key` then replaces a waiting one with the same sender, kind and key.
   */
  async signalRoom(room: string, kind: string, body?: unknown, options: { from?: string; name?: string; key?: string } = {}): Promise<void> {
    return this.#send("POST /v1/signals", { body: { ...options, room: checkedId("room", room), kind, body } });
  }

  /** Send a signal to all devices of a user. Its options are those of `signalRoom`. */
  async signalUser(user: string, kind: string, body?: unknown, options: { from?: string; name?: string; key?: string } = {}): Promise<void> {
    return this.#send("POST /v1/signals", { body: { ...options, user: checkedId("user", user), kind, body } });
  }

  // --- inboxes ---

  /**
   * Write a notification to a user's inbox and send it to the user's devices.
   *
   * `key` identifies the notification. A second call with the same key, from any process, writes nothing: it returns the
   * first notification, with `new: false`. Without `key`, the SDK generates one for each call, so that the retries of the
   * call write the notification once.
   */
  async notify(user: string, kind: string, body: unknown = null, options: NotificationOptions = {}): Promise<Notified> {
    const notification = { ...options, user: checkedId("user", user), kind, body, key: keyed(options.key) };
    return (await this.#call("POST /v1/notifications", { body: notification })) as Notified;
  }

  /** Write up to 10,000 notifications in one request, all or none. Return one result for each, in the same order. */
  async notifyMany(notifications: Iterable<Notification>): Promise<Notified[]> {
    const all = [...notifications].map((one) => ({ ...one, body: one.body ?? null, key: keyed(one.key) }));
    if (!all.length) return [];
    const answer = await this.#call("POST /v1/notifications", { body: { notifications: all } });
    return (answer as { notifications: Notified[] }).notifications;
  }

  /**
   * Return a page of a user's inbox, with at most 300 entries.
   *
   * `after`: the first entries after this number. `before`: the last entries before this number. Neither: the newest
   * entries.
   */
  inbox(user: string, page: Page<number> & { before?: number; filter?: "all" | "unread" | "unseen" | "archived" } = {}): Promise<Inbox> {
    return this.#call("GET /v1/users/{user}/inbox", { path: { user }, query: page });
  }

  // --- moderation ---

  /** Replace the body of message `seq` of any author. Return id and number of the edit. */
  editMessage(room: string, seq: number, body: unknown, options: Audit & { key?: string } = {}): Promise<Sent> {
    const { by, reason, key } = options;
    return this.#call("PATCH /v1/rooms/{room}/messages/{seq}", { path: { room, seq }, body: { by, reason, key: keyed(key), body } });
  }

  /** Delete message `seq` of any author. When the call has returned, no reader gets the content of the message or of its edits. */
  deleteMessage(room: string, seq: number, audit: Audit = {}): Promise<Sent> {
    return this.#call("DELETE /v1/rooms/{room}/messages/{seq}", { path: { room, seq }, query: audit });
  }

  /** Delete a room with its messages and members. Its listeners are removed at once, its data soon after. */
  deleteRoom(room: string, audit: Audit = {}): Promise<void> {
    return this.#send("DELETE /v1/rooms/{room}", { path: { room }, query: audit });
  }

  /** Archive a room, so that it can only be read. With `archived` false, make it writable again. Create the room if there is none. */
  archiveRoom(room: string, archived = true, audit: Audit = {}): Promise<Room> {
    return this.putRoom(room, { ...audit, archived });
  }

  /** Set the seconds between two messages of one user; 0 ends slow mode. Create the room if there is none. */
  setSlowMode(room: string, seconds: number, audit: Audit = {}): Promise<Room> {
    return this.putRoom(room, { ...audit, slow_mode_s: seconds });
  }

  /**
   * Mute a user in `room`; without `room`, in all rooms. A muted user can read, but cannot send.
   *
   * The mute ends at `until`; without `until` it has no end. When the call has returned, no message that the user sends there
   * is stored. Messages that the backend writes as this user are stored.
   */
  async mute(user: string, options: RestrictionOptions & { room?: string } = {}): Promise<Restriction> {
    const { room, body } = placed(options);
    if (room === null) return this.#call("PUT /v1/mutes/{user}", { path: { user }, body });
    return this.#call("PUT /v1/rooms/{room}/mutes/{user}", { path: { room, user }, body });
  }

  /** End a mute. A mute in all rooms and mutes in single rooms are independent of each other. */
  async unmute(user: string, options: Audit & { room?: string } = {}): Promise<void> {
    const { room, body: query } = placed(options);
    if (room === null) return this.#send("DELETE /v1/mutes/{user}", { path: { user }, query });
    return this.#send("DELETE /v1/rooms/{room}/mutes/{user}", { path: { room, user }, query });
  }

  /**
   * Ban a user from `room`; without `room`, from the tenant. The ban ends at `until`; without `until` it has no end.
   *
   * When the call has returned, the user gets nothing more of the room. Without `room`, the user's connections are closed.
   * If the call throws Unavailable, a node has not confirmed the ban: call again.
   */
  async ban(user: string, options: RestrictionOptions & { room?: string } = {}): Promise<Restriction> {
    const { room, body } = placed(options);
    if (room === null) return this.#call("PUT /v1/bans/{user}", { path: { user }, body });
    return this.#call("PUT /v1/rooms/{room}/bans/{user}", { path: { room, user }, body });
  }

  /** End a ban. A ban from the tenant and bans from single rooms are independent of each other. */
  async unban(user: string, options: Audit & { room?: string } = {}): Promise<void> {
    const { room, body: query } = placed(options);
    if (room === null) return this.#send("DELETE /v1/bans/{user}", { path: { user }, query });
    return this.#send("DELETE /v1/rooms/{room}/bans/{user}", { path: { room, user }, query });
  }

  /** Yield the mutes in `room`, read page by page. Without `room`, yield the mutes of the whole tenant, but not those of single rooms. */
  async *mutes(options: { room?: string } = {}): AsyncGenerator<Restriction, void> {
    const { room } = placed(options);
    yield* this.#restricted((query) =>
      room === null ? this.#call("GET /v1/mutes", { query }) : this.#call("GET /v1/rooms/{room}/mutes", { path: { room }, query }),
    );
  }

  /** Yield the bans from `room`, read page by page. Without `room`, yield the bans from the tenant, but not those from single rooms. */
  async *bans(options: { room?: string } = {}): AsyncGenerator<Restriction, void> {
    const { room } = placed(options);
    yield* this.#restricted((query) =>
      room === null ? this.#call("GET /v1/bans", { query }) : this.#call("GET /v1/rooms/{room}/bans", { path: { room }, query }),
    );
  }

  /** Return at most 300 entries of the audit, oldest first: the first entries after number `after`, or without it the newest. */
  async audit(page: NonNullable<RequestOf<"GET /v1/audit">["query"]> = {}): Promise<AuditEntry[]> {
    return (await this.#call("GET /v1/audit", { query: page })).entries;
  }

  /** Yield all entries of the audit after number `after`, oldest first, read page by page. */
  async *everyAuditEntry({ after = 0 }: { after?: number } = {}): AsyncGenerator<AuditEntry, void> {
    for (;;) {
      const page = await this.audit({ after, limit: MOST_MESSAGES });
      if (!page.length) return;
      yield* page;
      after = page.at(-1)!.number;
    }
  }

  // --- all operations ---

  /**
   * Send any request of the HTTP API: `server.request("GET /v1/users/{user}/devices", { path: { user: "alice" } })`.
   *
   * Ids in the path are checked. If the response is lost, a POST or PATCH is repeated only if its body has a `key`, with two
   * exceptions. `POST /v1/signals` is never repeated, because its `key` does not prevent a second signal. Queries of presence
   * and revocations are always repeated, because they have the same effect again.
   */
  request<Name extends keyof Operations>(
    operation: Name,
    ...[request]: {} extends RequestOf<Name> ? [request?: RequestOf<Name>] : [request: RequestOf<Name>]
  ): Promise<AnswerOf<Name>> {
    return this.#http.call(operation, request ?? ({} as RequestOf<Name>)) as Promise<AnswerOf<Name>>;
  }

  async #call<Name extends keyof Operations>(operation: Name, request: RequestOf<Name>): Promise<AnswerOf<Name>> {
    const answer = await this.#http.call(operation, request);
    if (answer === undefined) throw unreadable(this.url, 204);
    return answer as AnswerOf<Name>;
  }

  async #send<Name extends keyof Operations>(operation: Name, request: RequestOf<Name>): Promise<void> {
    if ((await this.#http.call(operation, request)) !== undefined) throw unreadable(this.url, 200);
  }

  #revoke(body: RequestOf<"POST /v1/tokens/revoke">["body"]): Promise<Revoked> {
    return this.#call("POST /v1/tokens/revoke", { body });
  }

  async *#restricted(read: (query: Page) => Promise<{ users: Restriction[]; next: string | null }>): AsyncGenerator<Restriction, void> {
    let after: string | null | undefined;
    do {
      const page = await read({ after: after ?? undefined, limit: PAGE });
      yield* page.users;
      after = page.next;
    } while (after);
  }
}

/** Return the key that identifies a message or notification, so that a retry does not write a second one. */
const keyed = (key: string | null | undefined) => key ?? randomHex(12);

/**
 * Return the room (null: the whole tenant) and the other options.
 *
 * A room that is undefined is refused: it is probably a mistake, and would mute or ban the user in the whole tenant.
 */
function placed<Options extends { room?: string }>(options: Options): { room: string | null; body: Omit<Options, "room"> } {
  const { room, ...body } = options;
  return { room: "room" in options ? checkedId("room", room) : null, body };
}
