export { appStatePage, type AppStateLike } from "./appstate.js";
export { connectionSource, createClient, hold, type UsedConnection } from "./connection.js";
export { inboxActions, type InboxActions, type InboxOptions, inboxSource, type InboxState } from "./inbox.js";
export { lastSeenSource, presenceSource } from "./presence.js";
export { receiptsSource, type ReceiptState, seenBy } from "./receipts.js";
export { type Outgoing, roomActions, type RoomActions, type RoomOptions, roomSource, type RoomState } from "./room.js";
export type { Source } from "./shared.js";
export { typingLine, type TypingOptions, typingSource } from "./typing.js";
export { unreadSource } from "./unread.js";
