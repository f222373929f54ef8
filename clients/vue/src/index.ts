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
} from "@greendot/client/stores";
export {
  useConnection,
  type UsedConnection,
  useInbox,
  type UsedInbox,
  useLastSeen,
  usePresence,
  useReceipts,
  type UsedReceipts,
  useRoom,
  type UsedRoom,
  useTyping,
  type UsedTyping,
  useUnread,
} from "./composables.js";
export { greendot, GreendotProvider, type GreendotSource, provideGreendot, useGreendot } from "./provider.js";
export type { Refs } from "./source.js";
