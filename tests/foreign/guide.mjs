// Runs the programs of a guide: node guide.mjs CLIENT.mjs APP.mjs, or node guide.mjs ENV. It is the app's auth endpoint.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import EchoModule from "laravel-echo";
import PusherServer from "pusher";
import Pusher from "pusher-js";

const Echo = EchoModule.default ?? EchoModule;
const keys = { appId: "4711", key: "278d425bdf160c739803", secret: "7ad3773142a6692b25b8" };
const signer = new PusherServer({ ...keys, host: "unused" });
const late = setTimeout(() => process.exit(3), 15_000);

const auth = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const form = new URLSearchParams(body);
  const user = { user_id: 7, user_info: { id: 7, name: "Ann" } };
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(signer.authorizeChannel(form.get("socket_id"), form.get("channel_name"), user)));
});
auth.listen(Number(process.env.AUTH_PORT), "127.0.0.1");
await once(auth, "listening");

const [first, second] = process.argv.slice(2);
const shown = new Promise((resolve) => Object.assign(globalThis, { show: resolve, add: () => {} }));
if (second !== undefined) {
  const connected = import(first);
  await connected;
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await import(second);
  assert.deepEqual(await shown, { text: "hello" });
} else {
  const env = Object.fromEntries(readFileSync(first, "utf8").trim().split("\n").map((line) => line.split("=")));
  const echo = new Echo({
    broadcaster: "reverb",
    Pusher,
    key: env.REVERB_APP_KEY,
    wsHost: env.REVERB_HOST,
    wsPort: env.REVERB_PORT,
    wssPort: env.REVERB_PORT,
    forceTLS: env.REVERB_SCHEME === "https",
    enabledTransports: ["ws", "wss"],
    authEndpoint: `http://127.0.0.1:${process.env.AUTH_PORT}/broadcasting/auth`,
  });
  const here = await new Promise((resolve) => echo.join("orders").here(resolve));
  assert.deepEqual(here, [{ id: 7, name: "Ann" }]);
  const app = { appId: env.REVERB_APP_ID, key: env.REVERB_APP_KEY, secret: env.REVERB_APP_SECRET };
  const server = new PusherServer({ ...app, host: env.REVERB_HOST, port: env.REVERB_PORT, useTLS: env.REVERB_SCHEME === "https" });
  const heard = new Promise((resolve) => echo.join("orders").listen("OrderShipped", resolve));
  await server.trigger("presence-orders", "App\\Events\\OrderShipped", { order: 9 });
  assert.deepEqual(await heard, { order: 9 });
}
clearTimeout(late);
process.exit(0);
