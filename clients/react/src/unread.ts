// Hook of unread counts.

import type { Greendot, Undo } from "@greendot/client";
import { RoomPart } from "./roompart.js";
import { Shared, useShared } from "./shared.js";

/**
 * Return the number of unread notifications, or of unread messages of a room. The room is joined while the component is
 * mounted, in order to receive new messages.
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
