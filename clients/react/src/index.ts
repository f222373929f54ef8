export { appStatePage } from "@greendot/client/stores";
export type {
  AppStateLike,
  InboxActions,
  InboxOptions,
  InboxState,
  Outgoing,
  ReceiptState,
  RoomActions,
  RoomOptions,
  RoomState,
  TypingOptions,
  UsedConnection,
} from "@greendot/client/stores";
export { useConnection } from "./connection.js";
export { GreendotProvider, type GreendotProviderProps, useGreendot } from "./provider.js";
export { useInbox, type UsedInbox } from "./inbox.js";
export { useLastSeen, usePresence } from "./presence.js";
export { useReceipts, type UsedReceipts } from "./receipts.js";
export { useRoom, type UsedRoom } from "./room.js";
export { useTyping, type UsedTyping } from "./typing.js";
export { useUnread } from "./unread.js";
