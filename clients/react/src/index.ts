export { useConnection, type UsedConnection } from "./connection.js";
export { GreendotProvider, type GreendotProviderProps, useGreendot } from "./provider.js";
export { useInbox, type UsedInbox } from "./inbox.js";
export type { InboxState } from "./inboxstore.js";
export { useLastSeen, usePresence } from "./presence.js";
export { useRoom, type RoomOptions, type UsedRoom } from "./room.js";
export type { Outgoing, RoomState } from "./roomstore.js";
export { useTyping, type TypingOptions, type UsedTyping } from "./typing.js";
export { useUnread } from "./unread.js";
