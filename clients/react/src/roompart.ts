// Being in a room for what is shown of it.

import type { Greendot, Room, RoomEvents, Undo } from "@greendot/client";
import { Shared } from "./shared.js";

/** One thing about a room that is joined for it. */
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

/** Be in the room until the answer is called, unless the server puts us out before. */
export function stay(room: Room<any, any>): Undo {
  let isIn = true;
  const undo = room.on("removed", () => (isIn = false));
  room.join().catch(() => {}); // told as `removed`
  return () => {
    undo();
    // Whoever was put out has left already; another `leave` would be for somebody else's `join`.
    if (isIn) room.leave();
    isIn = false;
  };
}
