// Composables. They start when the component is mounted and end with its scope. Arguments may be values, refs or getters.

import type { Greendot, Presence, Room } from "@greendot/client";
import {
  connectionSource,
  inboxActions,
  type InboxActions,
  type InboxOptions,
  inboxSource,
  type InboxState,
  lastSeenSource,
  presenceSource,
  type ReceiptState,
  receiptsSource,
  roomActions,
  type RoomActions,
  type RoomOptions,
  roomSource,
  type RoomState,
  seenBy,
  typingLine,
  type TypingOptions,
  typingSource,
  unreadSource,
  type UsedConnection as ConnectionState,
} from "@greendot/client/stores";
import { computed, type ComputedRef, type MaybeRefOrGetter, type Ref, toValue } from "vue";
import { useGreendot } from "./provider.js";
import { type Refs, spread, useSource } from "./source.js";

export type UsedConnection = Refs<Omit<ConnectionState, "connect">> & Pick<ConnectionState, "connect">;

/**
 * Return the state of the connection. In the states `waiting`, `offline` and `closed`, `reason.text` explains to the user why
 * the client is not online. `reason.action` is what the user can do, for example `sign-in` or `reload`. The action `wait`
 * means that the client reconnects by itself. In other states, `reason` is null.
 */
export function useConnection(): UsedConnection {
  const { connect, ...fields } = spread(useSource(connectionSource), computed(() => ({}))) as Refs<ConnectionState>;
  return { ...fields, connect: connect.value };
}

/** Return the presence of a user, undefined until it is known. The user is watched while the component is mounted. */
export function usePresence(user: MaybeRefOrGetter<string | null | undefined>): ComputedRef<Presence | undefined>;
/** Return the presence of users by id. Users without a known presence are not in the map. */
export function usePresence(users: MaybeRefOrGetter<readonly string[]>): ComputedRef<ReadonlyMap<string, Presence>>;
export function usePresence(who: MaybeRefOrGetter<string | readonly string[] | null | undefined>): ComputedRef<Presence | undefined | ReadonlyMap<string, Presence>> {
  const isOne = computed(() => !Array.isArray(toValue(who)));
  const names = computed(() => [toValue(who) ?? ""].flat().join("\n")); // ids contain no newline
  const people = useSource((client) => presenceSource(client, names.value ? names.value.split("\n") : []));
  return computed(() => (isOne.value ? people.value.get(names.value) : people.value));
}

/** Return a text such as "5 minutes ago" and keep it current. Empty if the user is not offline or the time is unknown. */
export function useLastSeen(presence: MaybeRefOrGetter<Presence | undefined>, options: MaybeRefOrGetter<{ locale?: string; justNow?: string }> = {}): Readonly<Ref<string>> {
  return useSource((client) => lastSeenSource(client, toValue(presence), toValue(options)));
}

export type UsedRoom<Body = unknown, SignalBody = unknown> = Refs<RoomState<Body>> &
  Omit<RoomActions<Body, SignalBody>, "room"> & {
    /** The client's room, with `edit`, `delete` and `signal`. */
    room: ComputedRef<Room<Body, SignalBody>>;
  };

/**
 * Return messages, occupants and typers of `room`. The room is joined while the component is mounted. `Body` is the type
 * of message bodies.
 */
export function useRoom<Body = unknown, SignalBody = unknown>(room: MaybeRefOrGetter<string>, options: RoomOptions = {}): UsedRoom<Body, SignalBody> {
  const actions = useActions((client) => roomActions<Body, SignalBody>(client, toValue(room)));
  const state = useSource((client) => roomSource<Body>(client, toValue(room), options));
  return { ...spread(state, actions), room: computed(() => actions.value.room) };
}

export interface UsedTyping extends Refs<Pick<RoomState["typing"], "typers" | "count">> {
  /** Text such as "Alice and Bob are typing…", or an empty string. */
  text: ComputedRef<string>;
  /** Report that the user types. Call `setTyping()` at every keystroke, and `setTyping(false)` when the field is empty. */
  setTyping(isTyping?: boolean): void;
}

/** Return the users who type in `room`. The room is joined while the component is mounted. */
export function useTyping(room: MaybeRefOrGetter<string>, options: MaybeRefOrGetter<TypingOptions> = {}): UsedTyping {
  const client = useGreendot();
  const typing = useSource((client) => typingSource(client, toValue(room)));
  return {
    typers: computed(() => typing.value.typers),
    count: computed(() => typing.value.count),
    text: computed(() => typingLine(typing.value, toValue(options))),
    setTyping: (isTyping = true) => client.room(toValue(room)).typing(isTyping),
  };
}

export interface UsedReceipts extends Refs<ReceiptState> {
  /** Return the ids of the other users who have read the message `seq`. */
  seenBy(seq: number): string[];
}

/**
 * Return how far the users in `room` have read. The room is joined while the component is mounted. After a reconnect the
 * receipts are fetched again.
 */
export function useReceipts(room: MaybeRefOrGetter<string>): UsedReceipts {
  const client = useGreendot();
  const state = useSource((client) => receiptsSource(client, toValue(room)));
  return { ...spread(state, computed(() => ({}))), seenBy: (seq) => seenBy(client, state.value, seq) };
}

export type UsedInbox<Body = unknown> = Refs<InboxState<Body>> & InboxActions;

/**
 * Return the newest notifications in ascending order, updated while the component is mounted. `Body` is the type of
 * their bodies. If one component marks a notification, for example as read, all components with `useInbox` show the change.
 */
export function useInbox<Body = unknown>(options: MaybeRefOrGetter<InboxOptions> = {}): UsedInbox<Body> {
  const state = useSource((client) => inboxSource<Body>(client, toValue(options)));
  return spread(state, useActions((client) => inboxActions(client, toValue(options))));
}

/**
 * Return the number of unread notifications, or of unread messages of a room. The room is joined while the component is
 * mounted, in order to receive new messages.
 */
export function useUnread(room?: MaybeRefOrGetter<string | undefined>): Readonly<Ref<number>> {
  return useSource((client) => unreadSource(client, toValue(room)));
}

function useActions<Actions>(make: (client: Greendot) => Actions): ComputedRef<Actions> {
  const client = useGreendot();
  return computed(() => make(client));
}
