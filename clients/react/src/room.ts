// Hook of one room.

import type { Room, Written } from "@greendot/client";
import { useMemo } from "react";
import { useGreendot } from "./provider.js";
import { EMPTY, type RoomOptions, type RoomState, RoomStore } from "./roomstore.js";
import { ignorable, shelfOf, useShared } from "./shared.js";

export interface UsedRoom<Body = unknown, SignalBody = unknown> extends RoomState<Body> {
  /** The client's room, with `edit`, `delete` and `signal`. */
  room: Room<Body, SignalBody>;
  /** Send a message. It is in `outgoing` until it is in `messages`. */
  send(body: Body, options?: { key?: string }): Promise<Written>;
  /** Set a reaction of the user to the message with number `seq`, or remove it with `on` false. */
  react(seq: number, reaction: string, on?: boolean): Promise<Written>;
  /** Remove a refused message from `outgoing`. */
  discard(key: string): void;
  /** Fetch the page before `messages`. */
  loadOlder(): Promise<void>;
  /** Report typing. Call it at every keystroke, with false when the field is empty. */
  setTyping(isTyping?: boolean): void;
  /** Mark messages up to number `seq` as read, by default all. Returns the number of unread messages. */
  markRead(seq?: number): Promise<number>;
  /** Join again after `removed` was set. */
  join(): void;
}

/**
 * Return messages, occupants and typers of `room`. The room is joined while the component is mounted. `Body` is the type
 * of message bodies. The functions stay the same between renders.
 */
export function useRoom<Body = unknown, SignalBody = unknown>(room: string, options: RoomOptions = {}): UsedRoom<Body, SignalBody> {
  const client = useGreendot();
  const name = `room ${room}`;
  const state = useShared<RoomState<Body>>(name, (client) => new RoomStore<Body>(client, room, options), EMPTY);
  const actions = useMemo(() => {
    // Looked up at each call: the store exists only while the component is mounted.
    const store = () => shelfOf(client).find(name) as RoomStore<Body> | undefined;
    const own = client.room<Body, SignalBody>(room);
    return {
      room: own,
      send: (body: Body, { key }: { key?: string } = {}) => store()?.send(body, key) ?? own.send(body, key ? { key } : {}),
      react: (seq: number, reaction: string, on = true) => ignorable(own.react(seq, reaction, { on })),
      discard: (key: string) => store()?.discard(key),
      loadOlder: async () => store()?.loadOlder(),
      setTyping: (isTyping = true) => own.typing(isTyping),
      markRead: (seq?: number) => ignorable(own.read(seq)),
      join: () => store()?.join(),
    };
  }, [client, room, name]);
  return useMemo(() => ({ ...state, ...actions }), [state, actions]);
}
