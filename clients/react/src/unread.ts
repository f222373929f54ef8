// Hook of unread counts.

import { unreadSource } from "@greendot/client/stores";
import { useSource } from "./source.js";

/**
 * Return the number of unread notifications, or of unread messages of a room. The room is joined while the component is
 * mounted, in order to receive new messages.
 */
export function useUnread(room?: string): number {
  return useSource((client) => unreadSource(client, room), room);
}
