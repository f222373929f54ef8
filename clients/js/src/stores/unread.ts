// Unread counts.

import type { Greendot, Undo } from "../index.js";
import { RoomPart } from "./roompart.js";
import { Shared, sharedSource, type Source } from "./shared.js";

/**
 * Return a source of the number of unread notifications. With `room`, return a source of the number of unread messages of this
 * room. While that source has a subscriber, the client is in the room.
 */
export function unreadSource(client: Greendot, room?: string): Source<number> {
  const name = room === undefined ? "badge" : `unread ${room}`;
  const make = (): Shared<number> => (room === undefined ? new InboxUnread(client) : new RoomPart(client, room, "unread", (of) => of.unread));
  return sharedSource(client, name, make, 0);
}

class InboxUnread extends Shared<number> {
  #client: Greendot;

  constructor(client: Greendot) {
    super(client.inbox.unread);
    this.#client = client;
  }

  protected override follow(): Undo[] {
    return [this.#client.inbox.on("badge", ({ unread }) => this.become(unread))];
  }
}
