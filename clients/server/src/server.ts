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

/** Page of a list: entries after this name or number, and at most `limit`. */
export interface Page<Key = string> {
  after?: Key;
  limit?: number;
}

/** Who makes a change and why, for the audit. Without `by`, the audit has the name of the API key. */
export interface Audit {
  by?: string;
  reason?: string;
}

/** Options of `notify`: the key, the end, and the push of a notification. */
export type NotificationOptions = Omit<Notification, "user" | "kind" | "body">;

/**
 * Greendot server for the backend of an app: `new Server({ url: "http://127.0.0.1:8000", apiKey, secret })`.
 *
 * Make one for each process. Temporary failures are retried, if the request cannot take effect twice. Refusals and
 * permanent failures throw a `ServerError`. Fields of requests and answers have their names from the HTTP API; times are
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
   * Return the content of a webhook that Greendot sent recently. Else throw BadWebhook; answer with 400.
   *
   * `body` is the body of the request as it was received, `headers` are its headers or the value of `Greendot-Signature`.
   */
  async verifyWebhook(body: string | Uint8Array | ArrayBuffer, headers: HookHeaders, options: HookOptions = {}): Promise<HookDelivery> {
    return verifyWebhook(body, headers, this.#options.webhookSecret ?? [], options);
  }

  // --- users ---

  /** Return the presence of users in their order. More than 10,000 take several requests. */
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

  /** Set a user's status, until `until` if given. Return the user's presence. */
  async setStatus(user: string, status: "auto" | "busy" | "invisible", options: { until?: number; text?: string } = {}): Promise<Presence> {
    return (await this.#call("PUT /v1/users/{user}/status", { path: { user }, body: { ...options, status } })).presence;
  }

  /** Return the name and the info that are stored for a user. */
  info(user: string): Promise<UserInfo> {
    return this.#call("GET /v1/users/{user}/info", { path: { user } });
  }

  /** Set a user's name or info (at most 1,024 bytes as JSON), or both. Null removes it; a field left out stays. */
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

  /** Set how changes of a user's presence reach the watchers. Afterwards the mode is in effect on every node. */
  async setPresenceMode(user: string, mode: "auto" | "live" | "poll"): Promise<void> {
    await this.#call("PUT /v1/users/{user}/presence/mode", { path: { user }, body: { mode } });
  }

  /** Add `other` to the contacts of `user`, one way. The last contact is now, or at `last_contact_at`. */
  addContact(user: string, other: string, options: { last_contact_at?: number } = {}): Promise<Contact> {
    return this.#call("PUT /v1/users/{user}/contacts/{other}", { path: { user, other }, body: options });
  }

  /** Remove a contact. Afterwards the change is in effect on every node. */
  removeContact(user: string, other: string): Promise<void> {
    return this.#send("DELETE /v1/users/{user}/contacts/{other}", { path: { user, other } });
  }

  // --- revocation: afterwards, revoked tokens and sessions receive nothing more. Unavailable: call again ---

  /** Revoke every token of the user issued before now, or before `before`. */
  async revokeUser(user: string, options: { before?: number } = {}): Promise<Revoked> {
    return this.#revoke({ before: options.before, user: checkedId("user", user) });
  }

  /** Revoke the token with this `jti`. With its user and expiry the server searches and keeps less. */
  async revokeToken(jti: string, options: { user?: string; expires_at?: number } = {}): Promise<Revoked> {
    // Without it, the request would revoke all tokens of the user.
    if (typeof jti !== "string" || !jti) throw new InvalidArgument("jti is the id of a token: a text that is not empty");
    return this.#revoke({ user: options.user, expires_at: options.expires_at, jti });
  }

  /** Close the session, which cannot be resumed, and revoke its token if it has a `jti`. */
  async revokeSession(session: string): Promise<Revoked> {
    return this.#revoke({ session: checkedId("session", session) });
  }

  /** Revoke every token of the key's tenant issued before now, or before `before`. */
  revokeAll(options: { before?: number } = {}): Promise<Revoked> {
    return this.#revoke({ before: options.before, all: true });
  }

  // --- rooms ---

  /** Create a room, or change its settings. A setting left out stays; a new room is for members only. */
  putRoom(room: string, settings: RoomSettings = {}): Promise<Room> {
    return this.#call("PUT /v1/rooms/{room}", { path: { room }, body: settings });
  }

  /** Return the room. NotFound: it does not exist. */
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

  /** Add a member, or change the role of one: a `reader` only receives, an `admin` also changes messages of others. */
  addMember(room: string, user: string, role: "reader" | "member" | "admin" = "member"): Promise<Member> {
    return this.#call("PUT /v1/rooms/{room}/members/{user}", { path: { room, user }, body: { role } });
  }

  /** Remove a member. Afterwards the user receives no more events of the room. Unavailable: call again. */
  removeMember(room: string, user: string): Promise<void> {
    return this.#send("DELETE /v1/rooms/{room}/members/{user}", { path: { room, user } });
  }

  /** Return the users who are in the room now, and their total number. */
  present(room: string, page: Page = {}): Promise<Present> {
    return this.#call("GET /v1/rooms/{room}/present", { path: { room }, query: page });
  }

  /** Return read receipts in the order of user ids. NotFound: the room has none (see `putRoom`). */
  receipts(room: string, page: Page = {}): Promise<Receipts> {
    return this.#call("GET /v1/rooms/{room}/receipts", { path: { room }, query: page }) as Promise<Receipts>;
  }

  /** Return the number of users who have read message `seq`, without users who hide. */
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
   * With the same `key`, from any process, it is the same message. Without one, the SDK generates a key for the retries
   * of this call.
   */
  async send(room: string, body: unknown, options: { user: string; name?: string; key?: string }): Promise<Sent> {
    const { user, name, key } = Object(options) as typeof options;
    const message = { user: checkedId("user", user), name, key: keyed(key), body };
    return this.#call("POST /v1/rooms/{room}/messages", { path: { room }, body: message });
  }

  /** Add a reaction of `user`, such as an emoji, to message `seq`. Return id and number of the reaction's record. */
  react(room: string, seq: number, reaction: string, { user }: { user: string }): Promise<Sent> {
    return this.#call("PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}", { path: { room, seq, reaction }, query: { user } });
  }

  /** Remove a reaction of `user`. Return id and number of the record, or those of the message if there was no reaction. */
  unreact(room: string, seq: number, reaction: string, { user }: { user: string }): Promise<Sent> {
    return this.#call("DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}", { path: { room, seq, reaction }, query: { user } });
  }

  /** Return messages in ascending order: those after or before a number, else the newest. At most 300. */
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
   * Send a signal to the users in a room. It is not stored, and never sent twice.
   *
   * `from` is the id that clients see as the sender, by default `system`. While a client reads slowly, a signal with a
   * `key` replaces a waiting one with the same sender, kind and key.
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
   * With the same `key`, from any process, it is the same notification, and the result is not `new`. Without one, the
   * SDK generates a key for the retries of this call.
   */
  async notify(user: string, kind: string, body: unknown = null, options: NotificationOptions = {}): Promise<Notified> {
    const notification = { ...options, user: checkedId("user", user), kind, body, key: keyed(options.key) };
    return (await this.#call("POST /v1/notifications", { body: notification })) as Notified;
  }

  /** Write up to 10,000 notifications in one request, all or none. Return the results in their order. */
  async notifyMany(notifications: Iterable<Notification>): Promise<Notified[]> {
    const all = [...notifications].map((one) => ({ ...one, body: one.body ?? null, key: keyed(one.key) }));
    if (!all.length) return [];
    const answer = await this.#call("POST /v1/notifications", { body: { notifications: all } });
    return (answer as { notifications: Notified[] }).notifications;
  }

  /** Return a page of a user's inbox, at most 300: the oldest after `after`, else the newest (before `before`). */
  inbox(user: string, page: Page<number> & { before?: number; filter?: "all" | "unread" | "unseen" | "archived" } = {}): Promise<Inbox> {
    return this.#call("GET /v1/users/{user}/inbox", { path: { user }, query: page });
  }

  // --- moderation ---

  /** Replace the body of message `seq`, whoever wrote it. Return id and number of the edit. */
  editMessage(room: string, seq: number, body: unknown, options: Audit & { key?: string } = {}): Promise<Sent> {
    const { by, reason, key } = options;
    return this.#call("PATCH /v1/rooms/{room}/messages/{seq}", { path: { room, seq }, body: { by, reason, key: keyed(key), body } });
  }

  /** Delete message `seq`, whoever wrote it. Afterwards no reader gets its content or that of its edits. */
  deleteMessage(room: string, seq: number, audit: Audit = {}): Promise<Sent> {
    return this.#call("DELETE /v1/rooms/{room}/messages/{seq}", { path: { room, seq }, query: audit });
  }

  /** Delete a room with its messages and members. Its listeners are removed at once, its data soon after. */
  deleteRoom(room: string, audit: Audit = {}): Promise<void> {
    return this.#send("DELETE /v1/rooms/{room}", { path: { room }, query: audit });
  }

  /** Archive a room, so that it can only be read, or end that. Create the room if there is none. */
  archiveRoom(room: string, archived = true, audit: Audit = {}): Promise<Room> {
    return this.putRoom(room, { ...audit, archived });
  }

  /** Set the seconds between two messages of one user; 0 ends slow mode. Create the room if there is none. */
  setSlowMode(room: string, seconds: number, audit: Audit = {}): Promise<Room> {
    return this.putRoom(room, { ...audit, slow_mode_s: seconds });
  }

  /** Mute a user in `room`, or in all rooms without it, until `until` if given. Afterwards none of the user's messages is stored. */
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

  /** Ban a user from `room`, or from the tenant without it, until `until` if given. Unavailable: call again. */
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

  /** Yield the users who are muted in `room`, or in all rooms without it, read page by page. */
  async *mutes(options: { room?: string } = {}): AsyncGenerator<Restriction, void> {
    const { room } = placed(options);
    yield* this.#restricted((query) =>
      room === null ? this.#call("GET /v1/mutes", { query }) : this.#call("GET /v1/rooms/{room}/mutes", { path: { room }, query }),
    );
  }

  /** Yield the users who are banned from `room`, or from the tenant without it, read page by page. */
  async *bans(options: { room?: string } = {}): AsyncGenerator<Restriction, void> {
    const { room } = placed(options);
    yield* this.#restricted((query) =>
      room === null ? this.#call("GET /v1/bans", { query }) : this.#call("GET /v1/rooms/{room}/bans", { path: { room }, query }),
    );
  }

  /** Return entries of the audit, the newest last: those after a number, else the newest. At most 300. */
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
   * Ids in the path are checked. Requests with POST and PATCH are repeated only if they have a `key`.
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

/** Return the key that names a message or notification, so that a retry is the same one. */
const keyed = (key: string | null | undefined) => key ?? randomHex(12);

/** Return the room and the other options. A room that is undefined is refused: by mistake, the whole tenant would be meant. */
function placed<Options extends { room?: string }>(options: Options): { room: string | null; body: Omit<Options, "room"> } {
  const { room, ...body } = options;
  return { room: "room" in options ? checkedId("room", room) : null, body };
}
