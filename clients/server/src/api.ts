// Types of the HTTP API, generated from the OpenAPI document of the server: npm run generate --workspace server

/** Entry of the audit. */
export interface AuditEntry {
  /** Number of the entry in the tenant: 1, 2, 3 … */
  number: number;
  /** Time of the change, in milliseconds UTC. */
  at: number;
  /** Who made the change: `by` of the request, else the name of the API key. Empty: an erased user. */
  actor: string;
  /** What was changed. */
  action: "message.deleted" | "message.edited" | "room.archived" | "room.deleted" | "room.slow_mode" | "room.unarchived" | "user.banned" | "user.muted" | "user.unbanned" | "user.unmuted";
  /** Id of the room; null: the whole tenant. */
  room: string | null;
  /** User whom the change concerns, such as the author of the message; null: none, or erased. */
  user: string | null;
  /** Number of the message; null: none. */
  ref: number | null;
  /** Reason that the request gave; null: none. */
  reason: string | null;
  /** End of a mute or a ban, in milliseconds UTC; null: no end. */
  until: number | null;
  /** Seconds that slow mode was set to; 0: slow mode was ended; null: another action. */
  slow_mode_s: number | null;
}

/** Page of the audit, in ascending order. */
export interface AuditPage {
  /** Entries in ascending order: the newest is the last one. */
  entries: AuditEntry[];
}

/** Contact of a user. The contact is one-way: `contact` does not get `user` as a contact. */
export interface Contact {
  /** Id of the user who has the contact. */
  user: string;
  /** Id of the user who is the contact. */
  contact: string;
  /** Time of the last contact, in milliseconds UTC. */
  last_contact_at: number;
}

/** Device that is registered for pushes, with the end of its token. */
export interface Device {
  /** Name of the device. */
  device: string;
  /** Service that delivers pushes to the device. */
  provider: "apns" | "fcm" | "webhook" | "webpush";
  /** Last characters of the device's token, to distinguish tokens. */
  token: string;
  /** Time when the device was registered, in milliseconds UTC. */
  created_at: number;
  /** Time of the last registration of the device or push to it, in milliseconds UTC. */
  used_at: number;
}

/** Devices of a user, in the order of their names. */
export interface Devices {
  /** Devices, in the order of their names. */
  devices: Device[];
}

/** Page of an inbox in ascending order, with the inbox's head and counters. */
export interface Inbox {
  /** Notifications in ascending order. */
  notifications: InboxEntry[];
  /** Number of the newest notification in the inbox; 0 if there was never one. */
  head: number;
  /** Number of notifications that are neither read nor archived. */
  unread: number;
  /** Number of notifications that are neither seen nor archived. */
  unseen: number;
}

/** Notification with the times of its delivery and of its marks: seen, read, archived, acknowledged. */
export interface InboxEntry {
  /** Number of the notification in the inbox. Numbers start at 1 and have no gaps. */
  seq: number;
  /** Id of the notification. */
  id: string;
  /** Kind of the notification, chosen by the app. */
  kind: string;
  /** Content of the notification: any JSON value. */
  body: unknown;
  /** Time when the notification was created, in milliseconds UTC. */
  created_at: number;
  /** Time when the notification expires, in milliseconds UTC; null if it does not expire. */
  expires_at: number | null;
  /** Time of the first delivery to a connected device, in milliseconds UTC; null if none. */
  live_at: number | null;
  /** Time of the first delivery to a push provider, in milliseconds UTC; null if none. */
  push_at: number | null;
  /** Time when the notification was seen, in milliseconds UTC; null if unseen. */
  seen_at: number | null;
  /** Time when the notification was read, in milliseconds UTC; null if unread. */
  read_at: number | null;
  /** Time when the notification was archived, in milliseconds UTC; null if it is not archived. */
  archived_at: number | null;
  /** Time when the notification was acknowledged, in milliseconds UTC; null if it is not acknowledged. */
  acked_at: number | null;
  /** Whether a device must acknowledge the notification with `inbox.ack`. */
  ack: boolean;
}

/** Member of a room. */
export interface Member {
  /** Id of the room. */
  room: string;
  /** Id of the member. */
  user: string;
  /** Role of the member. */
  role: "admin" | "member" | "reader";
}

/** Page of a room's members with their roles. */
export interface Members {
  /** Ids of the members, in ascending order. */
  members: string[];
  /** Roles of these members: user id → role. */
  roles: Record<string, "admin" | "member" | "reader">;
  /** Value of `after` for the next page; null: this page is the last one. */
  next: string | null;
}

/** Record of a room: a message, or a change of an earlier message. Records arrive in the order of their numbers. */
export interface Message {
  /** Id of the room. */
  room: string;
  /** Number of the message in the room. Numbers start at 1 and have no gaps. */
  seq: number;
  /** Id of the message. */
  id: string;
  /** Id of the author; empty if the author was erased. */
  user: string;
  /** Display name of the author when the message was sent; null if there is none. */
  name: string | null;
  /** Content of the message: any JSON value. */
  body: unknown;
  /** Time when the message was written, in milliseconds UTC. */
  at: number;
  /** Number of the message that this record edits, deletes or reacts to; null for a new message. */
  ref?: number | null;
  /**
   * `edit` or `delete`: the record changes the message `ref`. `react` or `unreact`: the user has set or removed the
   * reaction in `body` to the message `ref`. `erased`: the content was erased, because the app deleted the message or
   * the author was erased. Null: a new message.
   */
  op?: string | null;
  /** Info that the app has set for the user: a JSON object of at most 1,024 bytes. Absent if there is none. */
  info?: Record<string, unknown>;
  /** Reactions to the message, in pages of the history only; absent if there never were any. */
  reactions?: Reaction[];
  /**
   * With `reactions`: the number up to which they include all records. Apply only `react` and `unreact` records with a
   * higher number.
   */
  reacted?: number;
}

/** Page of a room's messages, in ascending order. */
export interface Messages {
  /** Messages in ascending order. */
  messages: Message[];
  /**
   * Number for the next page: the value of `after` if the request has `after`, else of `before`. Null: this page is the
   * last one.
   */
  next: number | null;
}

/** Node in the engine's records. */
export interface NodeReport {
  /** Incarnation of the node. */
  node: string;
  /** Whether the node renews its lease. */
  state: "dead" | "live";
  /** Time when the node last renewed its lease, in milliseconds UTC; null if unknown. */
  renewed_at: number | null;
  /** Time when the sessions of a dead node stop counting, in milliseconds UTC; null for a live node. */
  ends_at: number | null;
  /** Overload level of the node. */
  level: "normal" | "refusing" | "shedding";
}

/** List of all nodes, and the node that answers. */
export interface Nodes {
  /** All nodes that the engine knows, live and dead. */
  nodes: NodeReport[];
  /** Incarnation of the node that answers. */
  asked: string;
}

/** Notification to create, with at most one of `expires_at` and `ttl_s`. */
export interface Notification {
  /** Id of the user who gets the notification. */
  user: string;
  /** Kind of the notification, chosen by the app. The settings decide how kinds are kept. */
  kind: string;
  /** Content of the notification: any JSON value. */
  body: unknown;
  /**
   * Idempotency key. If the user already has a notification with this key, nothing is written; the answer describes
   * that notification.
   */
  key?: string | null;
  /** Time when the notification expires, in milliseconds UTC and in the future. */
  expires_at?: number | null;
  /** Time until the notification expires, in seconds. */
  ttl_s?: number | null;
  /** Importance of the push. */
  importance?: "critical" | "high" | "low" | "normal";
  /** Room of the message that the notification is about. The push waits while the user is active in the room. */
  room?: string | null;
  /** On a device, the push replaces the previous push with the same value. */
  collapse?: string | null;
  /** Whether the notification may be pushed; false: inbox only. */
  push?: boolean;
}

/** Results for several notifications. */
export interface NotificationsMade {
  /** One result per notification, in the order of the request. */
  notifications: Notified[];
}

/** Result for one notification. */
export interface Notified {
  /** Id of the notification; null if its kind is not kept. */
  id: string | null;
  /** Number of the notification in the inbox; null if its kind is not kept. */
  seq: number | null;
  /** Whether the notification was created now; false: its key was used before. */
  new: boolean;
}

/** Page of the users online, and the number of all users online. */
export interface Online {
  /** Ids of the users, in ascending order within the page. */
  users: string[];
  /** Value of `after` for the next page; null: this page is the last one. */
  next: string | null;
  /** Number of all users online. It may be 30 s old. */
  count: number;
  /** True: users may be missing, because lost records are being restored. */
  stale?: boolean;
}

/** New content of a message. */
export interface PatchMessage {
  /** New content of the message: any JSON value. */
  body: unknown;
  /** Id that clients see as the editor, and the actor in the audit. Default: `system`, and the API key. */
  by?: string | null;
  /** Reason for the change, for the audit. */
  reason?: string | null;
  /**
   * Idempotency key. If the editor already has a record with this key in the room, nothing is written; the answer
   * describes that record. Without it, the header `Idempotency-Key` counts.
   */
  key?: string | null;
}

/** Message to send to a room. */
export interface PostMessage {
  /** Id of the user who is the author of the message. */
  user: string;
  /** Content of the message: any JSON value. */
  body: unknown;
  /** Display name of the author; null: none. */
  name?: string | null;
  /**
   * Idempotency key. If the author already has a message with this key in the room, nothing is written; the answer
   * describes that message. Without it, the header `Idempotency-Key` counts.
   */
  key?: string | null;
}

/** Several notifications to create. All are written, or none. */
export interface PostNotifications {
  /** Notifications to create. */
  notifications: Notification[];
}

/**
 * Tokens or session to revoke: exactly one of `jti`, `session`, `user` and `all`.
 *
 * With `jti`, `user` may name the user of the token.
 */
export interface PostRevoke {
  /** Revoke the token with this claim `jti`. */
  jti?: string | null;
  /** Revoke this session, and its token if the token has a `jti`. */
  session?: string | null;
  /** Revoke the tokens of this user. With `jti`: the user of that token. */
  user?: string | null;
  /** Revoke the tokens of all users of the tenant. Must be true. */
  all?: true | null;
  /** Revoke tokens issued before this time, in milliseconds UTC; null: now. Only with `user` alone or with `all`. */
  before?: number | null;
  /**
   * Time when the token expires by itself, in milliseconds UTC. The server keeps the revocation until then. Only with
   * `jti`.
   */
  expires_at?: number | null;
}

/** Signal to send to a room or to the devices of a user: exactly one of `room` and `user`. */
export interface PostSignal {
  /** Type of the signal, chosen by the app. */
  kind: string;
  /** Id of the room that gets the signal. */
  room?: string | null;
  /** Id of the user whose devices get the signal. */
  user?: string | null;
  /** Content of the signal: any JSON value. */
  body?: unknown;
  /**
   * While signals wait for a slow client, a newer signal replaces a waiting signal with the same sender, kind and key.
   * Signals without a key are never replaced.
   */
  key?: string | null;
  /** Id that recipients see as the sender. */
  from?: string;
  /** Display name of the sender; null: none. */
  name?: string | null;
}

/** Presence of a user, as one reader sees it. `status` and `until` are sent to the user's own devices only. */
export interface Presence {
  /** Id of the user. */
  user: string;
  /** Display name of the user; null if there is none. */
  name: string | null;
  /** State of the user. A user who is unknown, hidden or invisible is `offline`. */
  state: "busy" | "idle" | "offline" | "online";
  /** Time when the state began, in milliseconds UTC; null if it is unknown or hidden. */
  since: number | null;
  /** Time when an offline user was last online, in milliseconds UTC; null if not offline, unknown or hidden. */
  last_seen: number | null;
  /**
   * Version of the state. Ignore an entry with a lower version than the one shown. Version 0 means that nothing is
   * known, and may replace any version.
   */
  version: number;
  /** Text that the user has set; null if there is none. */
  status_text?: string | null;
  /** `live`: the server sends changes. `poll`: it does not; read the user with `presence.get`. */
  mode?: "live" | "poll";
  /** Names of the user's devices. Replies and HTTP answers have this field, events do not. */
  devices?: string[];
  /** Status that the user has set. Only for the user's own devices. */
  status?: "auto" | "busy" | "invisible";
  /** Time when the status ends, in milliseconds UTC; null if it has no end. Only for the user's own devices. */
  until?: number | null;
  /** True: the state may be out of date, because the engine is away or restores lost records. */
  stale?: boolean;
  /**
   * Whether the user is online or busy, or became idle or offline within the last five minutes. Only if the mode is
   * `poll`.
   */
  recently_active?: boolean;
  /** Info that the app has set for the user: a JSON object of at most 1,024 bytes. Absent if there is none. */
  info?: Record<string, unknown>;
}

/** User with the mode of presence that the app has chosen. */
export interface PresenceModeShown {
  /** Id of the user. */
  user: string;
  /**
   * How changes reach the watchers of the user. `auto`: the number of watchers on a node decides. `live`: the server
   * always sends changes. `poll`: watchers poll, and see `recently_active`.
   */
  mode: "auto" | "live" | "poll";
}

/** Presence of the requested users, one entry per user, in the order of the request. */
export interface PresenceReply {
  /** One entry per requested user, in the order of the request. */
  presence: Presence[];
}

/** Page of a room's occupants, and the number of all occupants. */
export interface Present {
  /** Ids of the occupants, in ascending order. */
  users: string[];
  /** Number of all occupants, not only those in this page. */
  count: number;
  /** True: occupants may be missing, because lost records are being restored. */
  stale?: boolean;
  /** Names and info of the users in this page: user id → profile. Users with neither are left out. */
  profiles?: Record<string, UserInfo>;
}

/** Error of a request, as a problem document (RFC 9457). `detail` explains the error and names the remedy. */
export interface ProblemDocument {
  /** Standard phrase of the status. */
  title: string;
  /** HTTP status of the response. */
  status: number;
  /** Explanation of the error and its remedy, for people. */
  detail: string;
  /** Error code, as in error frames of the WebSocket protocol. */
  code?: WireCode;
  /** Always `about:blank`: `status` and `code` identify the error. */
  type?: "about:blank";
}

/** Push settings of a user. */
export interface PushChoices {
  /** Time zone of the quiet hours, such as Europe/Berlin. */
  time_zone?: string;
  /** Daily time in which pushes wait, except critical ones; null: none. */
  quiet_hours?: QuietHours | null;
}

/** Public key with which browsers subscribe to Web Push. */
export interface PushKey {
  /** VAPID public key of the tenant, in URL-safe base64; null if Web Push is not set up. */
  public_key: string | null;
}

/** Time of the last contact between two users. The body may be empty. */
export interface PutContact {
  /**
   * Time of the last contact, in milliseconds UTC; null or a time in the future: now. An earlier time than the stored
   * one changes nothing.
   */
  last_contact_at?: number | null;
}

/** Registration of a device for pushes. */
export interface PutDevice {
  /** Service that delivers pushes to the device. */
  provider: "apns" | "fcm" | "webhook" | "webpush";
  /** Token of the device from the provider. For `webpush`, the subscription as a JSON string. */
  token: string;
}

/** Name and info of a user. */
export interface PutInfo {
  /** Display name, instead of the name in the user's tokens; null or empty: none. */
  name?: string | null;
  /** JSON object of at most 1,024 bytes, such as avatar and colour; null or empty: none. */
  info?: Record<string, unknown> | null;
}

/** Role of a member. The body may be empty. */
export interface PutMember {
  /** `reader`: only receives messages. `member`: also sends messages. `admin`: also changes messages of other users. */
  role?: "admin" | "member" | "reader";
}

/** Push settings of a user. An omitted field gets its default. */
export interface PutPushChoices {
  /** Time zone of the quiet hours, such as Europe/Berlin. */
  time_zone?: string;
  /** Daily time in which pushes wait, except critical ones; null: none. */
  quiet_hours?: PutQuietHours | null;
}

/** Daily time in which pushes wait, except critical ones. If `ends` is before `begins`, the time spans midnight. */
export interface PutQuietHours {
  /** Beginning, as hours and minutes such as 22:00. */
  begins: string;
  /** End, as hours and minutes such as 07:00. */
  ends: string;
}

/** Users whose presence is requested. */
export interface QueryPresence {
  /** Ids of the users. */
  users: string[];
}

/** Daily time in which pushes wait, except critical ones. If `ends` is before `begins`, the time spans midnight. */
export interface QuietHours {
  /** Beginning, as hours and minutes such as 22:00. */
  begins: string;
  /** End, as hours and minutes such as 07:00. */
  ends: string;
}

/** Number of users with one reaction to a message. */
export interface Reaction {
  /** The reaction, such as an emoji. */
  reaction: string;
  /** Number of users who have this reaction. */
  count: number;
  /** Whether the reader has this reaction; absent over HTTP. */
  mine?: boolean;
}

/** Read receipt of a user. */
export interface Receipt {
  /** Id of the user. */
  user: string;
  /** Number of the last message that the user has read. */
  seq: number;
}

/** Page of read receipts, in the order of user ids; or the number of users who have read a message. */
export interface Receipts {
  /** Receipts, in the order of user ids. Absent if the request has `seq`. */
  receipts?: Receipt[];
  /** Value of `after` for the next page; null: this page is the last one. Absent if the request has `seq`. */
  next?: string | null;
  /** Number of the message from the request. Absent without it. */
  seq?: number;
  /** Number of users who have read the message. Absent if the request has no `seq`. */
  count?: number;
}

/** Device that was registered for pushes. */
export interface Registered {
  /** Id of the user. */
  user: string;
  /** Name of the device. */
  device: string;
  /** Service that delivers pushes to the device. */
  provider: "apns" | "fcm" | "webhook" | "webpush";
}

/** Mute or ban of a user. */
export interface Restriction {
  /** Id of the user. */
  user: string;
  /** Id of the room; null: the whole tenant. */
  room: string | null;
  /** Time when it ends, in milliseconds UTC; null: no end. */
  until: number | null;
  /** Time when it was made, in milliseconds UTC. */
  at: number;
  /** Who made it: `by` of the request, else the name of the API key. */
  by: string;
  /** Reason that the request gave; null: none. */
  reason: string | null;
}

/** Mute or ban of a user. The body may be empty. */
export interface RestrictionOptions {
  /** Time when it ends, in milliseconds UTC; null: no end. */
  until?: number | null;
  /**
   * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of the API
   * key.
   */
  by?: string | null;
  /** Reason for the change, for the audit. */
  reason?: string | null;
}

/** Page of mutes or bans that have not ended. */
export interface Restrictions {
  /** Mutes or bans, in the order of user ids. */
  users: Restriction[];
  /** Value of `after` for the next page; null: this page is the last one. */
  next: string | null;
}

/** Result of a revocation. */
export interface Revoked {
  /** Number of connections that were closed, on all nodes. */
  closed: number;
  /** Time until which the server keeps the revocation, in milliseconds UTC. */
  expires_at: number;
}

/** Room with its settings and the number of its newest message. */
export interface Room {
  /** Id of the room. */
  room: string;
  /** Whether users can join the room without being members. */
  open: boolean;
  /** Number of the newest message of the room; 0 if there is none. */
  head: number;
  /** `full`: the bus between nodes carries messages. `hint`: it carries hints without the content. */
  bus: "full" | "hint";
  /** Whether users see how far others have read. */
  receipts?: boolean;
  /** Whether the room can only be read: no messages, signals or typing. */
  archived?: boolean;
  /** Seconds between two messages of one user in slow mode; 0: no slow mode. */
  slow_mode_s?: number;
}

/** Page of rooms, in the order of their ids. */
export interface RoomList {
  /** Rooms, in the order of their ids. */
  rooms: Room[];
}

/** Settings of a room. The body may be empty. */
export interface RoomSettings {
  /** Whether users can join the room without being members; null: unchanged. A new room is closed. */
  open?: boolean | null;
  /**
   * `full`: the bus between nodes carries messages. `hint`: it carries hints without the content. Null: unchanged. A
   * new room is `full`.
   */
  bus?: "full" | "hint" | null;
  /** Whether users see how far others have read; null: unchanged. A new room has no read receipts. */
  receipts?: boolean | null;
  /** Whether the room can only be read: no messages, signals or typing. Null: unchanged. */
  archived?: boolean | null;
  /** Slow mode: seconds between two messages of one user. 0: no slow mode. Null: unchanged. */
  slow_mode_s?: number | null;
  /**
   * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of the API
   * key.
   */
  by?: string | null;
  /** Reason for the change, for the audit. */
  reason?: string | null;
}

/** Id and number of the record that was written. */
export interface Sent {
  /** Id of the message. */
  id: string;
  /** Number of the message in the room. Numbers start at 1 and have no gaps. */
  seq: number;
}

/** Session of a user. Some fields are null if the node of the session did not answer. */
export interface SessionInfo {
  /** Id of the session. */
  session: string;
  /** Id of the user. */
  user: string;
  /** Name of the device. */
  device: string;
  /** Name and version of the client program; null if the node did not answer. */
  client: Record<string, string> | null;
  /** Incarnation of the node that holds the session. */
  node: string;
  /** Time of the last connect or resume, in milliseconds UTC; null if the node did not answer. */
  connected_at: number | null;
  /** Time of the client's last frame, in milliseconds UTC; null if the node did not answer. */
  last_heard: number | null;
  /** `online`, `idle`, or `lingering`: the session has no connection and still counts. */
  state: string;
  /** Hash of the client's address; null if the node did not answer. */
  ip_hash: string | null;
  /** Hash of the client's User-Agent; null without a connection, or if the node did not answer. */
  agent_hash: string | null;
  /** Time until a lingering session ends, in milliseconds; null for other sessions. */
  ends_in_ms?: number | null;
}

/** Sessions of a user on all nodes. */
export interface SessionsReply {
  /** Sessions of the user, on all nodes. */
  sessions: SessionInfo[];
  /** Nodes that did not answer in time or are dead. Details of their sessions are null. */
  incomplete?: string[];
  /** True: sessions may be missing, because the engine is away or restores lost records. */
  stale?: boolean;
}

/** Mode of presence of a user. */
export interface SetPresenceMode {
  /**
   * How changes reach the watchers of the user. `auto`: the number of watchers on a node decides. `live`: the server
   * always sends changes. `poll`: watchers poll, and see `recently_active`.
   */
  mode: "auto" | "live" | "poll";
}

/** Status of a user, as the user could set it. */
export interface SetStatus {
  /**
   * Status of the user. `auto`: shown as online, idle or offline, depending on the user's sessions; `busy`: shown as
   * busy while the user has a session; `invisible`: shown as offline.
   */
  status?: "auto" | "busy" | "invisible";
  /** Time when the status ends, in milliseconds UTC and in the future; null: it lasts until the next change. */
  until?: number | null;
  /** Status text that other users see; null removes the text. */
  text?: string | null;
}

/** Presence of the user after a change of the status, as the user's own devices see it. */
export interface StatusReply {
  presence: Presence;
}

/** Counters of the key's tenant on the node that answers. */
export interface TenantStats {
  /** Incarnation of the node that answers. */
  node: string;
  /** Tenant of the key. */
  tenant: string;
  /** Open connections of the tenant. */
  connections: number;
  /** Users of the tenant with sessions on the node. */
  users: number;
  /** Messages, notifications and signals that were accepted since the node started. */
  sends: number;
  /** Refused commands of clients, and sends of the app above its limits. */
  refused: number;
}

/** User who types in a room. */
export interface Typer {
  /** Id of the user who types. */
  user: string;
  /** Display name of the user; null if there is none. */
  name: string | null;
  /** Time until the typing ends unless it is repeated, in milliseconds. */
  expires_in_ms: number;
  /** Info that the app has set for the user: a JSON object of at most 1,024 bytes. Absent if there is none. */
  info?: Record<string, unknown>;
}

/** Users who type in a room. */
export interface TypingNow {
  /** Users who type. */
  typing: Typer[];
}

/** Display name and info of a user. */
export interface UserInfo {
  /** Display name of the user; null if there is none. */
  name?: string | null;
  /** Info that the app has set for the user: a JSON object of at most 1,024 bytes. Absent if there is none. */
  info?: Record<string, unknown>;
}

/** Code of an error frame. */
export type WireCode =
  | "bad_field"
  | "bad_frame"
  | "banned"
  | "forbidden"
  | "internal"
  | "muted"
  | "no_such_room"
  | "not_a_member"
  | "rate_limited"
  | "rejected"
  | "slow_mode"
  | "too_many"
  | "unavailable"
  | "unknown_type";

/** Operations of the HTTP API that need a key: the request and the answer of each. */
export interface Operations {
  /** Return the presence of up to 10,000 users, as other users see them. */
  "POST /v1/presence/query": {
    request: {
      body: QueryPresence;
    };
    answer: PresenceReply;
  };
  /**
   * List the users online, one page at a time.
   *
   * Users are in the order of their ids within a page. In a large tenant the pages themselves are in no order.
   */
  "GET /v1/presence/online": {
    request: {
      query?: {
        /** Field next of the previous page, or the id of a user; without it, the first page. */
        after?: string;
        /** Maximum number of users in the page. */
        limit?: number;
      };
    };
    answer: Online;
  };
  /** Return the presence of a user, as other users see it. */
  "GET /v1/users/{user}/presence": {
    request: {
      path: { user: string };
    };
    answer: Presence;
  };
  /** List the sessions of a user on all nodes, whichever node answers. */
  "GET /v1/users/{user}/sessions": {
    request: {
      path: { user: string };
    };
    answer: SessionsReply;
  };
  /** Set the status and the status text of a user. */
  "PUT /v1/users/{user}/status": {
    request: {
      path: { user: string };
      body?: SetStatus;
    };
    answer: StatusReply;
  };
  /** Return the name and the info that are stored for a user. */
  "GET /v1/users/{user}/info": {
    request: {
      path: { user: string };
    };
    answer: UserInfo;
  };
  /** Set the name or the info of a user, or both. A field that is left out stays as it is; null removes it. */
  "PUT /v1/users/{user}/info": {
    request: {
      path: { user: string };
      body?: PutInfo;
    };
    answer: UserInfo;
  };
  /** Remove the name and the info of a user. Tokens that were issued before do not set them again. */
  "DELETE /v1/users/{user}/info": {
    request: {
      path: { user: string };
    };
    answer: undefined;
  };
  /** Return the mode of presence of a user; `auto` if the app has chosen none. */
  "GET /v1/users/{user}/presence/mode": {
    request: {
      path: { user: string };
    };
    answer: PresenceModeShown;
  };
  /**
   * Set the mode of presence of a user. The mode is in force on every node when the request is answered.
   *
   * A 503 means that a node has not confirmed the mode; send the request again.
   */
  "PUT /v1/users/{user}/presence/mode": {
    request: {
      path: { user: string };
      body: SetPresenceMode;
    };
    answer: PresenceModeShown;
  };
  /** Set the mode of presence of a user to `auto`. A 503 means the same as for PUT. */
  "DELETE /v1/users/{user}/presence/mode": {
    request: {
      path: { user: string };
    };
    answer: undefined;
  };
  /** Add a contact to a user, or record the time of the last contact. Contacts are one-way. */
  "PUT /v1/users/{user}/contacts/{other}": {
    request: {
      path: { user: string; other: string };
      body?: PutContact;
    };
    answer: Contact;
  };
  /**
   * Remove a contact. The removal is in force on every node when the request is answered.
   *
   * A 503 means that a node has not confirmed the removal; send the request again.
   */
  "DELETE /v1/users/{user}/contacts/{other}": {
    request: {
      path: { user: string; other: string };
    };
    answer: undefined;
  };
  /** List the devices of a user that are registered for pushes. */
  "GET /v1/users/{user}/devices": {
    request: {
      path: { user: string };
    };
    answer: Devices;
  };
  /** Register a device for pushes. The answer is 200 if the same registration existed before. */
  "PUT /v1/users/{user}/devices/{device}": {
    request: {
      path: { user: string; device: string };
      body: PutDevice;
    };
    answer: Registered;
  };
  /** Remove a device, so that it gets no more pushes. */
  "DELETE /v1/users/{user}/devices/{device}": {
    request: {
      path: { user: string; device: string };
    };
    answer: undefined;
  };
  /** Return the push settings of a user. */
  "GET /v1/users/{user}/push": {
    request: {
      path: { user: string };
    };
    answer: PushChoices;
  };
  /** Set the push settings of a user. */
  "PUT /v1/users/{user}/push": {
    request: {
      path: { user: string };
      body?: PutPushChoices;
    };
    answer: PushChoices;
  };
  /** Return the public key with which browsers subscribe to Web Push, for pages that do so themselves. */
  "GET /v1/push/key": {
    request: {};
    answer: PushKey;
  };
  /** List the rooms of the tenant in the order of their ids, one page at a time. */
  "GET /v1/rooms": {
    request: {
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: RoomList;
  };
  /** Create a room, or change its settings. While a deleted room of this name is removed, this fails with 409. */
  "PUT /v1/rooms/{room}": {
    request: {
      path: { room: string };
      body?: RoomSettings;
    };
    answer: Room;
  };
  /** Return a room. */
  "GET /v1/rooms/{room}": {
    request: {
      path: { room: string };
    };
    answer: Room;
  };
  /**
   * Delete a room with its messages and members.
   *
   * From now on, no user can join or read the room, or send to it. Its listeners get `room.changed` with `removed`. A
   * job removes the data of the room. Until it has ended, `PUT` of a room with the same name fails with 409.
   */
  "DELETE /v1/rooms/{room}": {
    request: {
      path: { room: string };
      query?: {
        /**
         * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of
         * the API key.
         */
        by?: string;
        /** Reason for the change, for the audit. */
        reason?: string;
      };
    };
    answer: undefined;
  };
  /** List the members of a room in the order of their ids, one page at a time. */
  "GET /v1/rooms/{room}/members": {
    request: {
      path: { room: string };
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Members;
  };
  /** Add a member to a room, or change the role of a member. */
  "PUT /v1/rooms/{room}/members/{user}": {
    request: {
      path: { room: string; user: string };
      body?: PutMember;
    };
    answer: Member;
  };
  /**
   * Remove a member from a room.
   *
   * Unless the room is open, no node delivers frames of the room to the user after the answer. A 503 means that a node
   * has not confirmed the removal; send the request again.
   */
  "DELETE /v1/rooms/{room}/members/{user}": {
    request: {
      path: { room: string; user: string };
    };
    answer: undefined;
  };
  /** List the occupants of a room on all nodes in the order of their ids, one page at a time. */
  "GET /v1/rooms/{room}/present": {
    request: {
      path: { room: string };
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Present;
  };
  /** List the users who type in a room. */
  "GET /v1/rooms/{room}/typing": {
    request: {
      path: { room: string };
    };
    answer: TypingNow;
  };
  /**
   * List how far users have read, one page at a time, or count the readers of a message. The room has receipts.
   *
   * Users who hide when they were last seen are left out, as is what users read while they were invisible. Users who
   * hide from any user are not counted.
   */
  "GET /v1/rooms/{room}/receipts": {
    request: {
      path: { room: string };
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
        /** Number of a message: return the number of users who have read it. */
        seq?: number;
      };
    };
    answer: Receipts;
  };
  /**
   * Return messages of a room in ascending order, one page at a time.
   *
   * A page has at most 1 MiB of bodies.
   */
  "GET /v1/rooms/{room}/messages": {
    request: {
      path: { room: string };
      query?: {
        /** Return the oldest entries after this number. */
        after?: number;
        /** Return the newest entries before this number; without a bound, the newest of all. */
        before?: number;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Messages;
  };
  /** Send a message to a room as a user. The user need not be connected or a member. */
  "POST /v1/rooms/{room}/messages": {
    request: {
      path: { room: string };
      body: PostMessage;
    };
    answer: Sent;
  };
  /**
   * Send a signal to a room or to the devices of a user.
   *
   * Signals are not stored: a client that is not connected does not get them.
   */
  "POST /v1/signals": {
    request: {
      body: PostSignal;
    };
    answer: undefined;
  };
  /**
   * Set a reaction of a user to a message. The user need not be connected or a member.
   *
   * If the user has the reaction already, nothing is written; the answer describes the record that set it.
   */
  "PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}": {
    request: {
      path: { room: string; seq: number; reaction: string };
      query: {
        /** Id of the user whose reaction it is. */
        user: string;
      };
    };
    answer: Sent;
  };
  /**
   * Remove a reaction of a user to a message.
   *
   * If the user does not have the reaction, nothing is written; the answer describes the message.
   */
  "DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}": {
    request: {
      path: { room: string; seq: number; reaction: string };
      query: {
        /** Id of the user whose reaction it is. */
        user: string;
      };
    };
    answer: Sent;
  };
  /** Edit a message of any author. The answer describes the record that carries the edit. */
  "PATCH /v1/rooms/{room}/messages/{seq}": {
    request: {
      path: { room: string; seq: number };
      body: PatchMessage;
    };
    answer: Sent;
  };
  /**
   * Delete a message of any author, and erase its content and that of its edits.
   *
   * The message keeps its number. The answer describes the record that carries the deletion. For a message that was
   * deleted before, this is the record of the first deletion.
   */
  "DELETE /v1/rooms/{room}/messages/{seq}": {
    request: {
      path: { room: string; seq: number };
      query?: {
        /**
         * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of
         * the API key.
         */
        by?: string;
        /** Reason for the change, for the audit. */
        reason?: string;
      };
    };
    answer: Sent;
  };
  /** Return changes that the app made by moderation, in ascending order, one page at a time. */
  "GET /v1/audit": {
    request: {
      query?: {
        /** Return the oldest entries after this number. */
        after?: number;
        /** Return the newest entries before this number; without a bound, the newest of all. */
        before?: number;
        /** Maximum number of entries in the page. */
        limit?: number;
        /** Only entries about this room. */
        room?: string;
        /** Only entries about this user, such as the author of a deleted message. */
        user?: string;
        /** Only entries of this action. */
        action?: "message.deleted" | "message.edited" | "room.archived" | "room.deleted" | "room.slow_mode" | "room.unarchived" | "user.banned" | "user.muted" | "user.unbanned" | "user.unmuted";
      };
    };
    answer: AuditPage;
  };
  /** List the users who are muted in a room in the order of their ids, one page at a time. */
  "GET /v1/rooms/{room}/mutes": {
    request: {
      path: { room: string };
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Restrictions;
  };
  /** Mute a user in a room, until a time or without end. A muted user can read, but cannot send. */
  "PUT /v1/rooms/{room}/mutes/{user}": {
    request: {
      path: { room: string; user: string };
      body?: RestrictionOptions;
    };
    answer: Restriction;
  };
  /** End the mute of a user in a room. */
  "DELETE /v1/rooms/{room}/mutes/{user}": {
    request: {
      path: { room: string; user: string };
      query?: {
        /**
         * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of
         * the API key.
         */
        by?: string;
        /** Reason for the change, for the audit. */
        reason?: string;
      };
    };
    answer: undefined;
  };
  /** List the users who are banned from a room in the order of their ids, one page at a time. */
  "GET /v1/rooms/{room}/bans": {
    request: {
      path: { room: string };
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Restrictions;
  };
  /**
   * Ban a user from a room, until a time or without end. A membership stays, and has no effect meanwhile.
   *
   * No node delivers frames of the room to the user after the answer. A 503 means that a node has not confirmed the
   * ban; send the request again.
   */
  "PUT /v1/rooms/{room}/bans/{user}": {
    request: {
      path: { room: string; user: string };
      body?: RestrictionOptions;
    };
    answer: Restriction;
  };
  /** End the ban of a user from a room. */
  "DELETE /v1/rooms/{room}/bans/{user}": {
    request: {
      path: { room: string; user: string };
      query?: {
        /**
         * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of
         * the API key.
         */
        by?: string;
        /** Reason for the change, for the audit. */
        reason?: string;
      };
    };
    answer: undefined;
  };
  /** List the mutes in the tenant, without mutes in single rooms, in the order of user ids, one page at a time. */
  "GET /v1/mutes": {
    request: {
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Restrictions;
  };
  /** Mute a user in all rooms, until a time or without end. */
  "PUT /v1/mutes/{user}": {
    request: {
      path: { user: string };
      body?: RestrictionOptions;
    };
    answer: Restriction;
  };
  /** End the mute of a user in all rooms. Mutes in single rooms stay. */
  "DELETE /v1/mutes/{user}": {
    request: {
      path: { user: string };
      query?: {
        /**
         * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of
         * the API key.
         */
        by?: string;
        /** Reason for the change, for the audit. */
        reason?: string;
      };
    };
    answer: undefined;
  };
  /** List the users who are banned from the tenant in the order of their ids, one page at a time. */
  "GET /v1/bans": {
    request: {
      query?: {
        /** Last id of the previous page; without it, the first page. */
        after?: string;
        /** Maximum number of entries in the page. */
        limit?: number;
      };
    };
    answer: Restrictions;
  };
  /**
   * Ban a user from the tenant, until a time or without end. The user's connections are closed with 4501.
   *
   * A 503 means that a node has not confirmed the ban; send the request again.
   */
  "PUT /v1/bans/{user}": {
    request: {
      path: { user: string };
      body?: RestrictionOptions;
    };
    answer: Restriction;
  };
  /** End the ban of a user from the tenant. Bans from single rooms stay. */
  "DELETE /v1/bans/{user}": {
    request: {
      path: { user: string };
      query?: {
        /**
         * Id of the person who makes the change, for the audit and the lists of mutes and bans. Default: the name of
         * the API key.
         */
        by?: string;
        /** Reason for the change, for the audit. */
        reason?: string;
      };
    };
    answer: undefined;
  };
  /**
   * Create one notification, or a list of notifications. The answer is 200 if none is new.
   *
   * A list is written completely or not at all.
   */
  "POST /v1/notifications": {
    request: {
      body: Notification | PostNotifications;
    };
    answer: Notified | NotificationsMade;
  };
  /** Return notifications of a user's inbox with their delivery times and marks, one page at a time. */
  "GET /v1/users/{user}/inbox": {
    request: {
      path: { user: string };
      query?: {
        /** Return the oldest entries after this number. */
        after?: number;
        /** Return the newest entries before this number; without a bound, the newest of all. */
        before?: number;
        /** Maximum number of entries in the page. */
        limit?: number;
        /** Notifications to return. The value all excludes archived notifications. */
        filter?: "all" | "archived" | "unread" | "unseen";
      };
    };
    answer: Inbox;
  };
  /**
   * Revoke a token, a session, all tokens of a user, or all tokens of the tenant.
   *
   * After the answer, the server writes nothing more to the revoked connections. A 503 means that a node has not
   * confirmed the revocation; send the request again.
   */
  "POST /v1/tokens/revoke": {
    request: {
      body: PostRevoke;
    };
    answer: Revoked;
  };
  /** List all nodes. */
  "GET /v1/nodes": {
    request: {};
    answer: Nodes;
  };
  /**
   * Return counters of the node that answers.
   *
   * A tenant's key gets the counters of its tenant, an operator's key those of the whole node.
   */
  "GET /v1/stats": {
    request: {};
    answer: TenantStats | Record<string, number | string>;
  };
  /** Disconnect a session with close code 4503, on any node. */
  "DELETE /v1/sessions/{session}": {
    request: {
      path: { session: string };
    };
    answer: undefined;
  };
}
