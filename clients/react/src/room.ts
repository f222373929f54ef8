// Hook of one room.

import { roomActions, type RoomActions, type RoomOptions, roomSource, type RoomState } from "@greendot/client/stores";
import { useSource, useWith } from "./source.js";

export interface UsedRoom<Body = unknown, SignalBody = unknown> extends RoomState<Body>, RoomActions<Body, SignalBody> {}

/**
 * Return the messages of `room`, the users in the room, the users who type, and actions such as `send`. The client is in the
 * room while the component is mounted. `Body` is the type of message bodies. The actions are the same functions in each
 * render.
 */
export function useRoom<Body = unknown, SignalBody = unknown>(room: string, options: RoomOptions = {}): UsedRoom<Body, SignalBody> {
  const state = useSource((client) => roomSource<Body>(client, room, options), room);
  return useWith(state, (client) => roomActions<Body, SignalBody>(client, room), room);
}
