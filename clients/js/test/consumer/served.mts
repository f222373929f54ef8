// A page that loads the client from its server, with the types that the server serves.

import { Greendot, GreendotError, type Presence, typingText } from "https://rt.example.com/greendot.js";

const client = new Greendot({ url: "https://rt.example.com", getToken: async () => "token" });
client.presence.watch(["alice"], (person: Presence) => console.log(person.state, typingText([])));
client.room<{ text: string }>("lobby").send({ text: "hello" }).catch((error: unknown) => {
  console.log(error instanceof GreendotError && error.code);
});
// @ts-expect-error: what belongs to the client alone is not offered
client.inbox.heard;
