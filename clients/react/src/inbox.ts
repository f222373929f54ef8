// Hook of the user's inbox.

import { inboxActions, type InboxActions, type InboxOptions, inboxSource, type InboxState } from "@greendot/client/stores";
import { useSource, useWith } from "./source.js";

export interface UsedInbox<Body = unknown> extends InboxState<Body>, InboxActions {}

/**
 * Return the newest notifications in ascending order, and actions such as `markRead`. `Body` is the type of the bodies of
 * notifications. If one component marks a notification, for example as read, all components with `useInbox` show the change.
 */
export function useInbox<Body = unknown>(options: InboxOptions = {}): UsedInbox<Body> {
  const { filter } = options;
  const state = useSource((client) => inboxSource<Body>(client, options), filter);
  return useWith(state, (client) => inboxActions(client, options), filter);
}
