// A backend that has installed the package, with import: it uses the built types.

import { type HookEvent, type Message, RateLimited, Server, type ServerOptions, verifyWebhook } from "@greendot/server";

const options: ServerOptions = { url: "https://rt.example.com", apiKey: "key", webhookSecret: ["new", "old"] };
const server = new Server(options);
const token: Promise<string> = server.token("alice", { name: "Alice", rooms: ["team-*"], ttl: 60 });
token.catch((error: unknown) => console.log(error instanceof RateLimited && error.retryAfter));
for await (const message of server.everyMessage<{ text: string }>("lobby")) console.log(message.body.text satisfies string);
const newest: Message[] = await server.messages("lobby", { limit: 1 });
const { devices } = await server.request("GET /v1/users/{user}/devices", { path: { user: "alice" } });
console.log(newest.length, devices[0]?.provider, (await server.request("GET /v1/rooms")).rooms);

function received(event: HookEvent): void {
  if (event.type === "room.message") console.log(event.data.seq satisfies number);
  else if (event.type === "notification.updated") console.log(event.data.ids satisfies string[]);
}
for (const event of (await verifyWebhook(new Uint8Array(), new Headers(), "secret")).events) received(event);

// @ts-expect-error: a misspelt option
await server.token("alice", { tll: 60 });
// @ts-expect-error: there is no such setting
await server.putRoom("lobby", { opne: true });
// @ts-expect-error: a signal has a kind
await server.signalRoom("lobby");
// @ts-expect-error: there is no such operation
await server.request("GET /v1/room");
// @ts-expect-error: the path has a user
await server.request("GET /v1/users/{user}/devices");
