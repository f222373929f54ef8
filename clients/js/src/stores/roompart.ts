// Rooms of which components show one value, such as the users who type.

import type { Greendot, Room, RoomEvents, Undo } from "../index.js";
import { Shared } from "./shared.js";

/** One value of a room. The client is in the room while a component uses the value. */
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

/**
 * Join the room. With `history`, fetch this number of newest messages with the join. Returns a function that leaves the room,
 * unless the server has removed the user before.
 */
export function stay(room: Room<any, any>, history?: number): Undo {
  let isIn = true;
  const undo = room.on("removed", () => (isIn = false));
  room.join(history === undefined ? {} : { history }).catch(() => {}); // the event `removed` reports a refusal
  return () => {
    undo();
    // A removal has already undone this `join`. A `leave` would then undo the `join` of another component.
    if (isIn) room.leave();
    isIn = false;
  };
}
