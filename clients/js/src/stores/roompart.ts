// Membership in a room while a component shows a part of it.

import type { Greendot, Room, RoomEvents, Undo } from "../index.js";
import { Shared } from "./shared.js";

/** One value of a room, which is joined while the value is used. */
export class RoomPart<Value> extends Shared<Value> {
  #room: Room;
  #event: keyof RoomEvents;
  #read: (room: Room) => Value;

  constructor(client: Greendot, name: string, event: keyof RoomEvents, read: (room: Room) => Value) {
    const room = client.room(name);
    super(read(room));
    this.#room = room;
    this.#event = event;
    this.#read = read;
  }

  protected override follow(): Undo[] {
    const changed = () => this.become(this.#read(this.#room));
    return [this.#room.on(this.#event, changed), stay(this.#room)];
  }
}

/** Join the room, with its newest `history` messages if given. Returns a function that leaves it, unless the server has removed the user before. */
export function stay(room: Room<any, any>, history?: number): Undo {
  let isIn = true;
  const undo = room.on("removed", () => (isIn = false));
  room.join(history === undefined ? {} : { history }).catch(() => {}); // reported as `removed`
  return () => {
    undo();
    // After a removal the room is left already. Another `leave` would undo the `join` of another component.
    if (isIn) room.leave();
    isIn = false;
  };
}
