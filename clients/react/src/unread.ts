// Hook of unread counts.

import { unreadSource } from "@greendot/client/stores";
import { useSource } from "./source.js";

/**
 * Return the number of unread notifications. With `room`, return the number of unread messages of this room. The client is in
 * the room while the component is mounted.
 */
export function useUnread(room?: string): number {
  return useSource((client) => unreadSource(client, room), room);
}
