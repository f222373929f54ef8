// How much is unread.

import type { Greendot, Undo } from "@greendot/client";
import { RoomPart } from "./roompart.js";
import { Shared, useShared } from "./shared.js";

/**
 * How many notifications are unread; with a room, how many of its messages. While the component is mounted the room is
 * joined: that is how new messages are heard of.
 */
export function useUnread(room?: string): number {
  const name = room === undefined ? "badge" : `unread ${room}`;
  const make = (client: Greendot): Shared<number> =>
    room === undefined ? new InboxUnread(client) : new RoomPart(client, room, "unread", (of) => of.unread);
  return useShared(name, make, 0);
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
