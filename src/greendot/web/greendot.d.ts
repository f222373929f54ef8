// Types of @greendot/client 0.1.0, Apache-2.0. Built from clients/js: npm run build:web

interface Clock {
    /** Milliseconds since 1970. */
    now(): number;
    /** Call `call` after `ms` milliseconds. Returns a function that cancels the call. */
    after(ms: number, call: () => void): () => void;
}
/** Wait before a command is sent again: the server's delay, or the default. */
declare function pause(clock: Clock, retryInMs: number | null): Promise<void>;
declare const systemClock: Clock;

/** Error codes of the server (docs/protocol.md, Errors) and of the client. */
type ErrorCode = "bad_frame" | "unknown_type" | "bad_field" | "not_a_member" | "no_such_room" | "forbidden"
/** The app has muted the user: the user can only read. */
 | "muted"
/** The app has banned the user from the room, or from the tenant. */
 | "banned"
/** The room is in slow mode: send again after `retryInMs`. */
 | "slow_mode"
/** The app refused the message before it was published. */
 | "rejected" | "rate_limited" | "too_many" | "unavailable" | "internal"
/** There is no connection, or it was lost before the answer. */
 | "disconnected"
/** The program or the server closed the client. */
 | "closed"
/** The commands that wait exceed the option `queue`. */
 | "queue_full"
/** The command exceeds the server's frame limit. */
 | "too_large"
/** `getToken` failed. */
 | "no_token"
/** The storage failed. */
 | "storage"
/** A listener threw; see `cause`. */
 | "listener" | (string & {});
/** Wrap an error of a callback, a listener or a storage in a GreendotError. */
declare function because(code: ErrorCode, what: string, cause: unknown): GreendotError;
declare class GreendotError extends Error {
    readonly code: ErrorCode;
    /** Whether the same call may succeed later without change. */
    readonly retry: boolean;
    /** Delay before a retry that the server gave, or null. */
    readonly retryInMs: number | null;
    name: string;
    constructor(code: ErrorCode, message: string, 
    /** Whether the same call may succeed later without change. */
    retry?: boolean, 
    /** Delay before a retry that the server gave, or null. */
    retryInMs?: number | null, cause?: unknown);
}

/**
 * Action for the user:
 * - `wait`: no action; the client reconnects by itself
 * - `check-network`: this device has no network
 * - `sign-in`: let the user sign in again, then call `connect()`
 * - `reload`: load the page again, because the server does not accept this version
 * - `use-here`: another page has taken over the session; `connect()` takes it back
 * - `ask`: an operator disconnected the user; ask the operator
 * - `none`: the program closed the client
 */
type Action = "wait" | "check-network" | "sign-in" | "reload" | "use-here" | "ask" | "none";
interface Reason {
    /** The close code, `unreachable`, `offline`, `no_token`, `closed`, or the code of an error. */
    readonly code: number | string;
    /** Sentence to show to the user. */
    readonly text: string;
    readonly action: Action;
    /** Time until the next attempt, counted from the event; null if there will be none. */
    readonly retryInMs: number | null;
    /** Details for logs, for example the server's close reason. */
    readonly detail: string;
}
/** Text and action by code. Other codes are `refused` from 4500 to 4999, else `lost`. */
declare const REASONS: Readonly<Record<number | string, readonly [text: string, action: Action]>>;
/** Return whether the close code forbids a reconnect. All other codes allow it. */
declare function isFinal(code: number): boolean;
declare function reasonFor(code: number | string, detail?: string, retryInMs?: number | null): Reason;

type State = "online" | "idle" | "busy" | "offline";
type Status = "auto" | "busy" | "invisible";
type MarkedAs = "seen" | "read" | "archived" | "acked";
type InboxFilter = "all" | "unread" | "unseen" | "archived";
/** JSON object that the app has set for a user, such as avatar and colour. */
type Info = Record<string, any>;
/** Name and info of a user. */
interface Profile {
    name: string | null;
    /** Absent if there is none. */
    info?: Info;
}
/** Presence of one user, as this reader may see it. */
interface Presence extends Profile {
    user: string;
    state: State;
    since: number | null;
    /** Null unless offline. */
    last_seen: number | null;
    /** Grows with every change; 0 if nothing is known. */
    version: number;
    status_text: string | null;
    /** `poll`: the server sends no change events of the user. The client polls about every 60 s while the page is visible. */
    mode: "live" | "poll";
    /** In snapshots only. */
    devices?: string[];
    /** On the user's own devices only. */
    status?: Status;
    /** On the user's own devices only: time at which the status ends. */
    until?: number | null;
    /** The state may be out of date: it is the last one that the server knew. */
    stale?: boolean;
    /** With mode `poll` only. */
    recently_active?: boolean;
}
/** Number of users with one reaction to a message. */
interface Reaction {
    reaction: string;
    count: number;
    /** Whether this user has the reaction. */
    mine: boolean;
}
/** Message of a room. An edit (`op: "edit"`), a deletion or a reaction is a separate message, and `ref` is the number of its target. */
interface RoomMessage<Body = unknown> {
    room: string;
    seq: number;
    id: string;
    /** Empty if the author was erased. */
    user: string;
    name: string | null;
    body: Body;
    at: number;
    ref: number | null;
    op: "edit" | "delete" | "react" | "unreact" | "erased" | null;
    /** Reactions to the message, in pages of the history only. `showMessages` counts later ones. */
    reactions?: readonly Reaction[];
    /** Number of the record up to which `reactions` are counted. */
    reacted?: number;
    /** Key of `send`, only on messages of this client. */
    key?: string;
    /** Current info of the author. */
    info?: Info;
}
/** Notification of an event. */
interface Notification<Body = unknown> {
    seq: number;
    id: string;
    kind: string;
    body: Body;
    created_at: number;
    /** Whether the notification needs an acknowledgement: see `inbox.ack`. */
    ack: boolean;
}
/** Notification in the inbox, with the times of its marks. */
interface InboxEntry<Body = unknown> extends Notification<Body> {
    seen_at: number | null;
    read_at: number | null;
    archived_at: number | null;
    acked_at: number | null;
}
/** Signal of another client. */
interface Signal<Body = unknown> {
    /** Null: an invisible user sent the signal. */
    from: string | null;
    name: string | null;
    kind: string;
    room?: string;
    body?: Body;
    key?: string;
}
/** Mark of inbox entries on any device: those of `ids`, or all up to `through`. */
interface Marked {
    state: MarkedAs;
    ids?: string[];
    through?: number;
}
interface Badge {
    unread: number;
    unseen: number;
}
interface Typer extends Profile {
    user: string;
}
interface Limits {
    frame_bytes: number;
    commands_per_s: number;
    watches: number;
    rooms: number;
    [name: string]: number;
}
interface RoomState {
    head: number;
    recovered: boolean;
    truncated: boolean;
}
/** Times of typing events. Servers before 0.1.0 do not send them. */
interface TypingTimes {
    /** Interval of repeated starts while the user types. */
    repeat_ms: number;
    /** Time for which a start is valid. */
    hold_ms: number;
    /** Minimum time between two starts. Earlier ones are dropped, also after a stop. */
    throttle_ms: number;
}
/** Data of the server about this session, sent after the hello. */
interface Welcome {
    session: string;
    user: string;
    tenant: string;
    node: string;
    resumed: boolean;
    heartbeat_s: number;
    server_time: number;
    unread: number;
    limits: Limits;
    rooms: Record<string, RoomState>;
    typing?: TypingTimes;
}
/** Entry of `client.rooms()`. */
interface RoomEntry {
    room: string;
    head: number;
    unread: number;
    open: boolean;
}
/** State of a room at the join. Missed messages come as events. */
interface Joined<Body = unknown> {
    room: string;
    head: number;
    unread: number;
    /** Number of users in the room, including this one. */
    present: number;
    /** The newest messages up to `head`, if the join has `history`; else empty. */
    messages: RoomMessage<Body>[];
}
/** Id and number of a stored message. */
interface Written {
    id: string;
    seq: number;
}
/** Number of the last message that a user has read, in a room with read receipts. */
interface Receipt {
    /** Absent in pages. */
    room?: string;
    user: string;
    seq: number;
}
/** Number of users who have read the message `seq`. */
interface ReaderCount {
    /** Absent in answers. */
    room?: string;
    seq: number;
    count: number;
}
interface ReceiptPage {
    receipts: Receipt[];
    /** Number of all receipts, not only those in this page. */
    count: number;
    /** Value of `after` for the next page, or null. */
    next: string | null;
}
interface PresentPage {
    users: string[];
    count: number;
    /** Names and info by user id, of users who have any. Servers of the version before do not send them. */
    profiles?: Record<string, Profile>;
}
interface InboxPage<Body = unknown> extends Badge {
    notifications: InboxEntry<Body>[];
    head: number;
}
interface Privacy {
    last_seen: "shown" | "hidden";
    hide_from: string[];
}
/** Event as received, for `client.on("event")`. */
interface RawEvent {
    type: string;
    v: number;
    ts: number;
    data: Record<string, unknown>;
    trace?: string;
}

/** Why a token is requested: there is none yet, it expires soon, it has expired, or the server refused it. */
type TokenWanted = "first" | "refresh" | "expired" | "refused";
interface GreendotOptions {
    /** URL with `ws://`, `wss://`, `http://` or `https://`; in a page also a path. The default path is `/v1/connect`. */
    url: string;
    /**
     * Return a token for the signed-in user, from your own backend. The client calls it at first use, before a token
     * expires, and when the server refused one. On null (no user is signed in) the client closes. If it throws, the client
     * retries later.
     */
    getToken: (why: TokenWanted) => string | null | Promise<string | null>;
    /** Name that distinguishes the devices of a user. By default a generated name, kept in `storage`. */
    device?: string;
    /** Shown to operators. */
    client?: {
        name: string;
        version: string;
    };
    /** Storage of cursors, by default in memory. With `localStore()` a reloaded page continues at its cursors. */
    storage?: Store;
    /** Whether to report activity of the user (pointer, keys, touch). In pages the default is true. */
    activity?: boolean;
    /** WebSocket class for environments without a global one (Node 20: `import WebSocket from "ws"`). */
    webSocket?: WebSocketMaker;
    /** Whether to use an event stream (SSE and POST) where WebSockets do not pass. The default is true. */
    fallback?: boolean;
    /** Limits of commands that wait, by default 200 commands and 1 MiB. Further commands fail with `queue_full`. */
    queue?: {
        count?: number;
        bytes?: number;
    };
    /** Delay between attempts: random from 0 to `baseMs` × 2ⁿ, at most `capMs`. The defaults are 500 and 30,000. */
    backoff?: {
        baseMs?: number;
        capMs?: number;
    };
    /** For tests. */
    clock?: Clock;
    /** For tests: a number in [0, 1). */
    random?: () => number;
    /** For tests: the source of network, visibility and activity, by default the page. `null`: none. */
    page?: Page | null;
}
/** Options of a signal. */
interface SignalOptions {
    /** Of signals with the same key, kind and sender only the latest counts. */
    key?: string;
    /** Whether to wait for the answer of the server. */
    reply?: boolean;
}
/** Storage of a few short strings, sync or async. Its errors are not fatal and are emitted as `error`. */
interface Store {
    get(key: string): string | null | Promise<string | null>;
    set(key: string, value: string): void | Promise<void>;
}
/** The part of a WebSocket that the client uses. */
interface Socket {
    readonly readyState: number;
    onopen: ((event: any) => void) | null;
    onmessage: ((event: any) => void) | null;
    onclose: ((event: any) => void) | null;
    onerror: ((event: any) => void) | null;
    send(text: string): void;
    close(code?: number, reason?: string): void;
}
type WebSocketMaker = new (url: string) => Socket;
/** The page around the client. */
interface Page {
    /** False if the device is known to have no network. */
    isOnline(): boolean;
    isVisible(): boolean;
    /** Call `call` when network or visibility may have changed, when the user is active, or when the page is left. */
    on(sign: "network" | "visibility" | "activity" | "leave", call: () => void): Undo;
}
/** Function that undoes the call that returned it. Further calls do nothing. */
type Undo = () => void;
/**
 * State of a client:
 *
 * - `idle`: not started. `connect()` starts it
 * - `connecting`: the client is connecting to the server
 * - `online`: the server has sent its welcome
 * - `waiting`: for the next attempt, in `reason.retryInMs`. `connect()` makes the attempt now
 * - `offline`: this device has no network. The client continues when there is one
 * - `closed`: by `close()`, or for good by the server; see `reason`. `connect()` starts again
 */
type ConnectionState = "idle" | "connecting" | "online" | "waiting" | "offline" | "closed";
/** State of the connection to the server. The same object until something changes. */
interface Connection {
    readonly state: ConnectionState;
    /** Reason why the client is not online. null in the states `idle`, `connecting` and `online`. */
    readonly reason: Reason | null;
    /** Number of failed attempts and lost connections in a row. A connection that lasts longer than 5 s ends the row. */
    readonly failures: number;
}
/**
 * Users who type in a room. In rooms with many users (setting `typing.large_room`), `typers` is empty, and only `count` is
 * known.
 */
interface Typing {
    room: string;
    typers: readonly Typer[];
    count: number;
}
/** User in a room, with name and info. */
interface UserProfile extends Profile {
    room: string;
    user: string;
}
/** Records of a room or the inbox that are not delivered: fetch those between `after` and `head`. */
interface Gap {
    after: number;
    /** Below `after` if the server lost records. New records are numbered from here. */
    head: number;
}
/** `client.on(…)` */
interface ClientEvents {
    state: Connection;
    welcome: Welcome;
    presence: Presence;
    typing: Typing;
    message: RoomMessage<any>;
    notification: Notification<any>;
    badge: Badge;
    signal: Signal<any>;
    /** Failure that no promise reports: a signal was refused, a token could not be fetched, a listener threw. */
    error: GreendotError;
    /** The server had an event of this type that this client cannot read: fetch the data again. */
    refresh: {
        of: string;
    };
    /** Every event of the server as received, before the client processes it. */
    event: RawEvent;
}
/** `room.on(…)` */
interface RoomEvents<Body = unknown, SignalBody = unknown> {
    /** Every message once and in order, across reconnects. */
    message: RoomMessage<Body>;
    typing: Typing;
    /** A user entered. Rooms with many users (setting `typing.large_room`) emit only `count`. */
    entered: UserProfile;
    /** Name or info of a user in the room has changed. */
    profile: UserProfile;
    left: {
        room: string;
        user: string;
    };
    /** Number of users in the room. */
    count: number;
    /** Number of unread messages, over all devices. */
    unread: number;
    /**
     * A user has read up to message `seq`, in a room with read receipts. Rooms with many users or members (setting
     * `rooms.receipts_members`) emit `receipt_count`.
     */
    receipt: Receipt;
    /** Number of users who have read message `seq`, in a room with read receipts and many users or members. */
    receipt_count: ReaderCount;
    /** The client joined the room, for the first time or again. */
    joined: Joined<Body>;
    /** The user is no longer in this room. The value is the reason as a text. If the server refused the join: the code of the error. */
    removed: string;
    /** The app has archived the room, so that it can only be read, or has ended this. */
    archived: boolean;
    /**
     * The app has muted the user until this time, in milliseconds UTC (Infinity: no end). null: the mute has ended, or is not
     * known after a leave, a removal or a close.
     */
    muted: number | null;
    /** Seconds between two messages of one user; 0: slow mode has ended. */
    slow_mode: number;
    signal: Signal<SignalBody>;
    /** Too many messages were missed, or the server lost some: discard the shown messages and fetch with `history`. */
    resync: Gap;
}
/** `client.inbox.on(…)` */
interface InboxEvents {
    created: Notification<any>;
    updated: Marked;
    badge: Badge;
    resync: Gap;
}

/** Notifications to mark: one id, several ids, or all notifications up to and including the `seq` in `through`. */
type Marks = string | readonly string[] | {
    through: number;
};
/**
 * `client.inbox`: the user's notifications. Each notification has a number, its `seq`. A later notification has a higher
 * `seq`.
 *
 * `seen`, `read`, `archive` and `ack` mark notifications, on all devices of the user. Without a connection, these methods and
 * `list` wait for a connection.
 */
declare class Inbox {
    #private;
    /** Number of unread notifications. It is the same on all devices of the user. */
    unread: number;
    /** Number of unseen notifications. It is the same on all devices of the user. */
    unseen: number;
    /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
    on<Type extends keyof InboxEvents>(type: Type, listener: (event: InboxEvents[Type]) => void): Undo;
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
    list<Body = unknown>(page?: {
        after?: number;
        before?: number;
        limit?: number;
        filter?: InboxFilter;
    }): Promise<InboxPage<Body>>;
    /** Mark notifications as seen: the user has opened a list with these notifications. */
    seen(which: Marks): Promise<Badge>;
    /** Mark notifications as read, and as seen. */
    read(which: Marks): Promise<Badge>;
    /**
     * Archive notifications, and mark them as read and as seen. `list` returns archived notifications only with the filter
     * `archived`.
     */
    archive(which: Marks): Promise<Badge>;
    /**
     * Acknowledge notifications, and mark them as read and as seen.
     *
     * If a notification has `ack: true`, it waits for an acknowledgement. While it waits, the server sends it to each device
     * that connects, and repeats it to the connected devices. Each node (server process) stops after ten repetitions, and begins
     * again when a device connects to this node.
     */
    ack(which: Marks): Promise<Badge>;
}

declare class Emitter<Events> {
    #private;
    /** `failed` is called with the error of a listener and with the event type. The keys of `known` are the event types. */
    constructor(failed: (error: unknown, type: unknown) => void, known: Record<keyof Events, 1>);
    on<Type extends keyof Events>(type: Type, call: (event: Events[Type]) => void): Undo;
    emit<Type extends keyof Events>(type: Type, event: Events[Type]): void;
}
/** Call `call`. If it throws, call `failed` with the error. */
declare function attempt<T>(call: (argument: T) => void, argument: T, failed: (error: unknown) => void): void;

/** Name of a lane: a sequence of commands that are sent in order. With a new symbol, a command has a lane of its own. */
type Lane = string | symbol;
/** Send a command over the connection. Fails with `disconnected` without a connection, or if the connection is lost before the answer. */
type Transmit = (command: string, fold?: (reply: any) => void) => Promise<any>;
/**
 * Queue of commands that the client may send twice without harm. Examples are reads, marks that only move forward, and
 * writes with a key: of several writes with one key, the server carries out only the first. Each lane sends one command at a time, so
 * that commands of a lane stay in order.
 */
declare class Outbox {
    #private;
    constructor(most: {
        count?: number;
        bytes?: number;
    } | undefined, transmit: Transmit, clock: Clock);
    get size(): number;
    /** Send a command and return its answer. If the connection is lost before the answer, the command is sent again. */
    send<Reply>(lane: Lane, command: string, fold?: (reply: Reply) => void): Promise<Reply>;
    /** Send the waiting commands on a new connection. */
    _flush(): void;
    /** Reject all waiting commands, because the client is closed. */
    _fail(error: GreendotError): void;
}

/** Return a storage in memory, which lasts as long as the page. */
declare function memoryStore(): Store;
/** Return a storage in `localStorage` or another Storage, under names that begin with `prefix`. */
declare function localStore(prefix?: string, storage?: Pick<Storage, "getItem" | "setItem">): Store;
declare class Cursors {
    #private;
    _inbox: number | null;
    constructor(store: Store, clock: Clock, failed: (error: GreendotError) => void);
    room(name: string): number | null;
    /** Save and detach the previous user: moves until `load` are not saved. Returns false if the user is the same. */
    _leave(owner: string): boolean;
    /** Load the cursors of this user. */
    _load(owner: string): Promise<void>;
    /** Move the cursor of a room. Null removes it. */
    _moveRoom(name: string, seq: number | null): void;
    _moveInbox(seq: number | null): void;
    _save(): void;
    /** Return this device's name. It is the same as long as the storage keeps it. */
    device(make: () => string): Promise<string>;
}

/** Callbacks of a session. The client implements them. */
interface SessionCallbacks {
    /**
     * Return the fields of the command `hello`, such as the token and the point from which the server continues: the id of the
     * device's last session on the server (not of this `Session`), and the `seq` of the last message of each room and of the last
     * notification. `owner` is the text `TENANT/USER`, from the token. Stored data belongs to one owner.
     */
    _hello(token: string, owner: string): Promise<object>;
    /** Process an event of the server. */
    event(frame: RawEvent): void;
    /** Add listeners to the page. Returns functions that remove these listeners when the session closes. */
    _listen(page: Page): Undo[];
    /** Process the loss of the connection. */
    _lost(): void;
    /** Process the close of the session. Commands that wait for a connection fail with `error`. */
    _closed(error: GreendotError): void;
}
declare class Session {
    #private;
    /**
     * State of the connection. In the states `waiting`, `offline` and `closed`, `reason` explains why the client is not
     * online. In the other states, `reason` is null.
     */
    connection: Connection;
    /** Data of the last event `welcome`. */
    welcome: Welcome | null;
    readonly _clock: Clock;
    readonly _page: Page | null;
    readonly _cursors: Cursors;
    readonly _events: Emitter<ClientEvents>;
    readonly _outbox: Outbox;
    _random: () => number;
    constructor(options: GreendotOptions, callbacks: SessionCallbacks);
    /** Whether the server has sent the event `welcome` on the current connection. */
    get online(): boolean;
    /** Intervals of typing reports, in milliseconds. The server sets these intervals. */
    get typing(): TypingTimes;
    /** Whether the page is visible. Without a page, the value is true. */
    get visible(): boolean;
    /** Return the estimated time of the server. */
    now(): number;
    /** Send a command if there is a connection. Returns whether the client has sent the command. */
    _trySend(type: string, fields?: object): boolean;
    /** Send a signal. Returns whether the client has sent the signal. With `reply`, returns a promise of the answer instead. */
    signal(fields: object, { key, reply }?: SignalOptions): boolean | Promise<void>;
    /**
     * Send a command on the current connection, and return the data of the answer. If the answer is a temporary error, such as
     * `rate_limited`, the client sends the command again after a pause. The code `internal` is an exception: it is a temporary
     * error too, but the call fails at once. Without a connection, or if the connection is lost, the call fails with
     * `disconnected`.
     *
     * `fold` is called with the data of the answer, before the client processes any later message of the server. Code
     * that awaits the promise may run after these messages.
     */
    ask<Reply>(type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply>;
    /**
     * Send a command, and return the data of the answer. Without a connection, the command waits for the next connection. If
     * the connection is lost before the answer, the client sends the command again. So the command must be idempotent. The call
     * fails if the server refuses the command for good, if the session is closed, or if too many commands wait.
     *
     * The client sends commands with the same `lane` one by one: each command waits for the answer to the previous command.
     * For `fold`, see `ask`.
     */
    _queue<Reply>(lane: Lane, type: string, fields?: object, fold?: (reply: Reply) => void): Promise<Reply>;
    /** Emit the event `error`, for an error that no promise reports. */
    _failed: (error: GreendotError) => void;
    /** Log an error that a listener of the event `type` has thrown, and emit the event `error`. */
    _threw: (error: unknown, type?: unknown) => void;
    /** Connect. In state `waiting` or `offline`, make the next attempt now. */
    connect(): void;
    /**
     * Close the connection, and do not connect again. If `bye` is true, the server ends its session of this device at once.
     * Otherwise, the server waits some seconds for the device to return.
     */
    close(bye: boolean): void;
}

type Listener = (entry: Presence) => void;
/** Return whether `entry` is at least as new as `known`. */
declare function isNewer(entry: Presence, known: Presence | undefined): boolean;
/** Merge `entry` into `known`. An entry of an equal version may lack devices: change events do not carry them. */
declare function merge(entry: Presence, known: Presence | undefined): Presence;
/** Return `entry` at the time `now`: a status ends at its `until`, even without an event. */
declare function aged(entry: Presence, now: number): Presence;
/** `client.presence`: presence of other users. */
declare class People {
    #private;
    constructor(session: Session);
    /**
     * Watch users: `listener` is called with the entry of each user as soon as it is known, then with every change.
     * Watches are counted: a user is watched until every watch is undone. All watches of one turn are one command.
     */
    watch(users: string | Iterable<string>, listener?: Listener): Undo;
    /** Return the known entry of a watched user, at least as new as the delivered one. A new object after each change. */
    of(user: string): Presence | undefined;
    /** Fetch the presence of these users, in this order, watched or not. */
    get(users: string | Iterable<string>): Promise<Presence[]>;
}

/** Arguments of `history`. */
interface Bounds {
    before?: number;
    after?: number;
    limit?: number;
}
/**
 * A room, from `client.room(name)`.
 *
 * Each message of a room has a number, its `seq`. A later message has a higher `seq`. Edits, deletions and reactions are
 * messages, too: each has its own `seq`, and its field `ref` is the `seq` of the message that it changes. The read marker of a
 * user is the `seq` up to which the user has read the room, on any device.
 */
declare class Room<Body = unknown, SignalBody = unknown> {
    #private;
    readonly name: string;
    /** `seq` of the newest known message. 0 before the first join, after a removal, and after another user has signed in. */
    head: number;
    /** Number of users in the room. null before the first join, and after a leave or a removal. */
    count: number | null;
    /** Whether the client is in the room now: the server has accepted the join on the current connection. */
    joined: boolean;
    /** Whether the app has archived the room. Users can read an archived room, but not change it. */
    archived: boolean;
    /**
     * End of the user's mute, in milliseconds UTC. If the mute has no end, the value is Infinity. If the user is not muted, the
     * value is null. It is also null before the first join, and after a leave, a removal or a close of the client. A lost
     * connection does not change the value.
     */
    mutedUntil: number | null;
    /** Shortest time between two messages of one user, in seconds. 0: no slow mode. */
    slowModeS: number;
    /** Number of unread messages, including edits, deletions and reactions. */
    get unread(): number;
    /** Users who type, and their number. After each change, the value is a new object. */
    get typers(): Typing;
    /** Call `listener` with every event of this type. Returns a function that removes the listener. Throws if the type is unknown. */
    on<Type extends keyof RoomEvents>(type: Type, listener: (event: RoomEvents<Body, SignalBody>[Type]) => void): Undo;
    /**
     * Join the room, now and after every reconnect. Without a connection, the call waits for a connection. After the join, the
     * room emits the event `message` for each new message. Several components of a program may join the same room: see `leave`.
     *
     * The options select older messages. A call with both options throws an error.
     *
     * - With `after`, the room first emits the messages with a higher `seq` than `after`. If the client has joined the room
     *   already, `after` has no effect.
     * - With `history`, the result contains this number of newest messages, at most 100 and 1 MiB. The room emits all later messages.
     * - With neither option, the room first emits the messages after the last message that it has emitted. The client keeps the
     *   `seq` of this message in its `storage` (by default in memory), until a leave or a removal. If the storage has no such
     *   `seq`, the room emits only new messages.
     */
    join({ after, history }?: {
        after?: number;
        history?: number;
    }): Promise<Joined<Body>>;
    /**
     * Undo one call of `join`. After as many calls of `leave` as of `join`, the client leaves the room. The event `removed`
     * undoes all calls of `join` before the event: do not call `leave` for these calls.
     */
    leave(): void;
    /**
     * Send a message. The promise resolves when the server has stored the message. Without a connection, the message waits for
     * a connection. The client sends messages in the order of the calls.
     *
     * If the connection is lost before the answer, the client sends the message again, with the same `key`. The server stores
     * only one message with this key. By default, the client generates a new key for each call.
     */
    send(body: Body, options?: {
        key?: string;
    }): Promise<Written>;
    /** Replace the body of the message whose `seq` is `ref`. For `key`, see `send`. */
    edit(ref: number, body: Body, options?: {
        key?: string;
    }): Promise<Written>;
    /**
     * Delete the message whose `seq` is `ref`. Clients no longer show the message, but its content stays in the server's
     * database. To erase the content, let your backend delete the message, too. For `key`, see `send`.
     */
    delete(ref: number, options?: {
        key?: string;
    }): Promise<Written>;
    /**
     * Add a reaction of the user to the message whose `seq` is `ref`. With `on: false`, remove the reaction. A second call with
     * the same arguments has no effect. For `key`, see `send`.
     */
    react(ref: number, reaction: string, { on, key }?: {
        on?: boolean;
        key?: string;
    }): Promise<Written>;
    /**
     * Fetch a page of at most `limit` messages, in ascending order:
     *
     * - With `after`, the page has the next messages after this `seq`.
     * - With `before`, the page has the last messages before this `seq`.
     * - Without `after` and `before`, the page has the newest messages.
     *
     * A call with both `after` and `before` fails.
     */
    history(bounds?: Bounds): Promise<RoomMessage<Body>[]>;
    /**
     * Mark the messages up to `seq` as read; by default all messages. Without a connection, the call waits for a connection.
     * Returns the number of messages that are still unread.
     */
    read(seq?: number): Promise<number>;
    /**
     * Report that the user types. Call `typing()` at every keystroke. The client limits the number of reports: by default, it
     * sends one report in 3 s (`welcome.typing.repeat_ms`). Some seconds after the last call, the typing ends by itself. To end
     * the typing at once, for example when the field is empty, call `typing(false)`.
     */
    typing(isTyping?: boolean): void;
    /**
     * Fetch a page of the users in the room, ordered by id, with their names and info. For the next page, pass the last id as
     * `after`.
     */
    present(page?: {
        after?: string;
        limit?: number;
    }): Promise<PresentPage>;
    /**
     * Fetch a page of read receipts, ordered by user id. A receipt has the `seq` up to which a user has read. For the next page,
     * pass `next` of the result as `after`. With `seq`, fetch only the number of users who have read this message.
     *
     * If the app has not turned on read receipts for the room, each call fails. If the room has more than 100 members, or if
     * more than 100 users are in the room, only calls with `seq` work: other calls fail with `too_many`. The operator can change
     * this limit (`rooms.receipts_members`).
     */
    receipts(page: {
        seq: number;
    }): Promise<ReaderCount>;
    receipts(page?: {
        after?: string;
        limit?: number;
    }): Promise<ReceiptPage>;
    /**
     * Send a signal to the users in the room, for example the position of a pointer. The server does not store signals. If a
     * client receives slowly, the signals for this client wait in the server. A new signal then replaces a waiting signal with the
     * same sender, kind and `key`. Signals without a `key` do not replace each other.
     *
     * Without a connection, the client drops the signal. The result is true if the client has sent the signal. With
     * `reply: true`, the result is a promise: it fails if the server refuses the signal, or if there is no connection.
     */
    signal(kind: string, body: SignalBody, options: SignalOptions & {
        reply: true;
    }): Promise<void>;
    signal(kind: string, body?: SignalBody, options?: {
        key?: string;
    }): boolean;
}

/** Client of one user. It keeps a connection to a Greendot server and reconnects by itself. */
declare class Greendot {
    #private;
    /** Presence of other users. */
    readonly presence: People;
    /** The user's notifications. */
    readonly inbox: Inbox;
    readonly status: {
        /** Set the user's own status on all devices. It ends at `until`. Returns the user's new presence. */
        set: (wanted: {
            status: Status;
            until?: number | Date | null;
            text?: string | null;
        }) => Promise<Presence>;
    };
    readonly privacy: {
        /** Hide the user's last-seen time, or hide the user from some users. Omitted fields keep their value. Returns all settings. */
        set: (wanted: Partial<Privacy>) => Promise<Privacy>;
        get: () => Promise<Privacy>;
    };
    constructor(options: GreendotOptions);
    get state(): ConnectionState;
    /** Reason why the client is not online. null in the states `idle`, `connecting` and `online`. */
    get reason(): Reason | null;
    /** State and reason. A new object after each change; `on("state")` delivers it. */
    get connection(): Connection;
    /** The server's last `welcome`; null before the first one. */
    get welcome(): Welcome | null;
    /** The user of the token; null before the first welcome. */
    get user(): string | null;
    /** Number of commands that wait to be sent, or for their answer. */
    get queued(): number;
    /** Connect, and stay connected. In state `waiting` or `offline`, make the next attempt now. */
    connect(): void;
    /**
     * Close the connection and reject commands that wait. The user may go offline at once. With `{ bye: false }` the
     * server waits some seconds for this device to return. `connect()` starts again, with the same rooms and watches.
     */
    close({ bye }?: {
        bye?: boolean;
    }): void;
    /** Call `listener` with every event of this type. Returns a function that removes the listener. */
    on<Type extends keyof ClientEvents>(type: Type, listener: (event: ClientEvents[Type]) => void): Undo;
    /** Return the room of this name, always the same object. `Body` is the type of message bodies. */
    room<Body = unknown, SignalBody = unknown>(name: string): Room<Body, SignalBody>;
    /** List the rooms of which the user is a member and the open rooms, with their unread counts. */
    rooms(): Promise<RoomEntry[]>;
    /**
     * Send a signal to all devices of a user. Returns false if there is no connection: the signal is dropped. With
     * `reply`, returns a promise that fails if the server refuses the signal.
     */
    signal(user: string, kind: string, body: unknown, options: SignalOptions & {
        reply: true;
    }): Promise<void>;
    signal(user: string, kind: string, body?: unknown, options?: {
        key?: string;
    }): boolean;
    /** Report that the user is active. Pages call it automatically. Throttled. */
    active(): void;
    /** Return the estimated time of the server, for `lastSeenText`. */
    now(): number;
    /** Send any command of the protocol and return the data of its reply. Without a connection: `disconnected`. */
    request<Reply = Record<string, unknown>>(type: string, fields?: object): Promise<Reply>;
}

/** Return `id` if it is valid, else throw. The server refuses a whole command for one invalid id. */
declare function validId(what: string, id: string): string;
/** Generate a unique key for `send`. */
declare function newKey(): string;

/** Message with edits, deletions and reactions applied. */
interface ShownMessage<Body = unknown> extends RoomMessage<Body> {
    edited: boolean;
    /** Whether the message was deleted or its author erased. `body` is then null. */
    deleted: boolean;
    /** Number of the edit or deletion applied last. */
    changed: number;
    reactions: readonly Reaction[];
    /** Number of the record up to which `reactions` are counted. */
    reacted: number;
}
/**
 * Merge `records` into `shown`, in any order and any number of times. Returns the messages sorted, each once, with edits,
 * deletions and reactions applied. Returns the same array if nothing changed. `limit` keeps only the newest messages.
 * Reactions of `user` are `mine`.
 */
declare function showMessages<Body>(shown: readonly ShownMessage<Body>[], records: readonly RoomMessage<Body>[], limit?: number, user?: string | null): readonly ShownMessage<Body>[];

/** Text, or texts by the categories of Intl.PluralRules. `{n}` is replaced by the number. */
type Plural = string | (Partial<Record<Intl.LDMLPluralRule, string>> & {
    other: string;
});
/** Texts of `typingText`. `{0}` and `{1}` are replaced by names, `{n}` by the number of typers. */
interface TypingWords {
    one: string;
    two: string;
    /** More than two. */
    several: Plural;
    /** One or two typers without known names, as in large rooms. */
    some: Plural;
}
/**
 * Return "Alice is typing…", "Alice and Bob are typing…" or "several people are typing…"; empty without typers. `count`
 * is the number of typers if it exceeds the names, as in large rooms. `words` are texts in another language, with the
 * plurals of `locale`.
 */
declare function typingText(names: readonly string[], count?: number, { locale, words }?: {
    locale?: string;
    words?: TypingWords;
}): string;
/**
 * Return "just now" or "5 minutes ago" in the language of `locale`; empty if `at` is null. `now` is `client.now()`. A
 * time in the future, caused by differing clocks, counts as just now.
 */
declare function lastSeenText(at: number | null, now: number, { locale, justNow }?: {
    locale?: string;
    justNow?: string;
}): string;
/** Return the milliseconds until the result of `lastSeenText` changes; null if it never changes. */
declare function lastSeenNext(at: number | null, now: number): number | null;

export { Action, Badge, ClientEvents, Clock, Connection, ConnectionState, ErrorCode, Gap, Greendot, GreendotError, GreendotOptions, Inbox, InboxEntry, InboxEvents, InboxFilter, InboxPage, Info, Joined, Limits, Marked, MarkedAs, Marks, Notification, Page, People, Plural, Presence, PresentPage, Privacy, Profile, REASONS, RawEvent, Reaction, ReaderCount, Reason, Receipt, ReceiptPage, Room, RoomEntry, RoomEvents, RoomMessage, RoomState, ShownMessage, Signal, SignalOptions, Socket, State, Status, Store, TokenWanted, Typer, Typing, TypingTimes, TypingWords, Undo, UserProfile, WebSocketMaker, Welcome, Written, lastSeenNext, lastSeenText, localStore, memoryStore, newKey, showMessages, typingText };
