// A program that has installed the package, with import: what it sees are the built types.

import { Greendot, type RoomMessage, typingText } from "@greendot/client";
import { roomSource, type RoomState } from "@greendot/client/stores";
import { PushError, subscribePush } from "@greendot/client/push";

const client = new Greendot({ url: "wss://example.com", getToken: async () => "token" });
const undo: () => void = client.room<{ text: string }>("lobby").on("message", (message: RoomMessage<{ text: string }>) => {
  console.log(message.body.text, typingText([]));
});
undo();
const state: RoomState<{ text: string }> = roomSource<{ text: string }>(client, "lobby").get();
console.log(state.messages[0]!.body.text);
const subscribed: Promise<PushSubscription> = subscribePush(client, { ask: false });
subscribed.catch((error: unknown) => console.log(error instanceof PushError && error.code));
// @ts-expect-error: what belongs to the client alone is not offered
client.inbox.heard;
