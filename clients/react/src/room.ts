// One room.

import type { Room, Written } from "@greendot/client";
import { useMemo } from "react";
import { useGreendot } from "./provider.js";
import { EMPTY, type RoomState, RoomStore } from "./roomstore.js";
import { ignorable, shelfOf, useShared } from "./shared.js";

/** Where several components show a room, those of the first count. */
export interface RoomOptions {
  /** How many records are fetched at once, 300 at most. 50 unless given. */
  pageSize?: number;
  /** How many messages are kept, the newest; more once older ones were fetched. 1,000 unless given. */
  keep?: number;
}

export interface UsedRoom<Body = unknown, SignalBody = unknown> extends RoomState<Body> {
  /** The client's room, for what is not here: `edit`, `delete`, `signal`. */
  room: Room<Body, SignalBody>;
  /** Write a message. It is in `outgoing` until it is in the room. */
  send(body: Body, options?: { key?: string }): Promise<Written>;
  /** Take one out of `outgoing` that was refused. */
  discard(key: string): void;
  /** Fetch the page before `messages`. */
  loadOlder(): Promise<void>;
  /** Call it at every keystroke, with false when the field is empty again. */
  setTyping(isTyping?: boolean): void;
  /** The person has read up to number `seq`, or all there is; how many are left. */
  markRead(seq?: number): Promise<number>;
  /** Try again to be let in, where `removed` says that we are not. */
  join(): void;
}

/**
 * What is said in `room`, who is there and who types. While the component is mounted the room is joined. `Body` is the
 * type of its messages. Functions stay the same from render to render.
 */
export function useRoom<Body = unknown, SignalBody = unknown>(room: string, options: RoomOptions = {}): UsedRoom<Body, SignalBody> {
  const { pageSize = 50, keep = 1_000 } = options;
  const client = useGreendot();
  const name = `room ${room}`;
  const state = useShared<RoomState<Body>>(name, (client) => new RoomStore<Body>(client, room, pageSize, keep), EMPTY);
  const actions = useMemo(() => {
    // Looked up when called: before it is mounted and after, there is none.
    const store = () => shelfOf(client).find(name) as RoomStore<Body> | undefined;
    const own = client.room<Body, SignalBody>(room);
    return {
      room: own,
      send: (body: Body, { key }: { key?: string } = {}) => store()?.send(body, key) ?? own.send(body, key ? { key } : {}),
      discard: (key: string) => store()?.discard(key),
      loadOlder: async () => store()?.loadOlder(),
      setTyping: (isTyping = true) => own.typing(isTyping),
      markRead: (seq?: number) => ignorable(own.read(seq)),
      join: () => store()?.join(),
    };
  }, [client, room, name]);
  return useMemo(() => ({ ...state, ...actions }), [state, actions]);
}
