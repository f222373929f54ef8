// A program that has installed the package, with import: what it sees are the built types.

import { Greendot, type RoomMessage, typingText } from "@greendot/client";

const client = new Greendot({ url: "wss://example.com", getToken: async () => "token" });
const undo: () => void = client.room<{ text: string }>("lobby").on("message", (message: RoomMessage<{ text: string }>) => {
  console.log(message.body.text, typingText([]));
});
undo();
// @ts-expect-error: what belongs to the client alone is not offered
client.inbox.heard;
