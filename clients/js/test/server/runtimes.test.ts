// Every WebSocket a Node program may use: the package ws, and undici's, which Node has built in.

import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket as WsWebSocket } from "ws";
import type { WebSocketMaker } from "../../src/index.js";
import { GreendotServer, heard, until } from "./greendot.js";

const BUILT_IN = globalThis.WebSocket as unknown as WebSocketMaker; // vitest.config.ts switches it on for Node 20
const RUNTIMES: [string, WebSocketMaker][] = [
  ["ws", WsWebSocket as unknown as WebSocketMaker],
  ["undici", BUILT_IN],
];

let server: GreendotServer;
const others: Server[] = [];
beforeAll(async () => void (server = await GreendotServer.start()));
afterEach(() => {
  server.reset();
  for (const other of others.splice(0)) other.close();
});
afterAll(() => server.stop());

async function listening(other: Server): Promise<number> {
  others.push(other);
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  return (other.address() as AddressInfo).port;
}

async function refusedPort(): Promise<number> {
  const other = createServer();
  const port = await listening(other);
  await new Promise((resolve) => other.close(resolve));
  return port;
}

const REFUSALS: [string, () => Promise<number>][] = [
  ["a port nobody listens on", refusedPort],
  ["an HTTP answer in place of an upgrade", () => listening(createHttpServer((_, answer) => answer.writeHead(503).end("full")))],
  ["a socket that is closed during the handshake", () => listening(createServer((socket) => socket.once("data", () => socket.end())))],
  ["a socket that is reset during the handshake", () => listening(createServer((socket) => socket.once("data", () => socket.resetAndDestroy())))],
];

describe.each(RUNTIMES)("%s", (_, webSocket) => {
  test.each(REFUSALS)("%s costs an attempt its back-off and no more", async (_, refusing) => {
    const client = server.client("alice", { webSocket, url: `ws://127.0.0.1:${await refusing()}` });
    const states = heard<{ state: string }>((on) => client.on("state", on));
    client.connect();
    await until(() => client.state === "waiting" && client.connection.failures >= 4); // waiting for a timeout of 10 s each takes 40 s
    expect(client.reason).toMatchObject({ code: "unreachable", text: "The server cannot be reached." });
    expect(states.slice(0, 4).map(({ state }) => state)).toEqual(["connecting", "waiting", "connecting", "waiting"]);
  });

  test("a client comes online, comes back after a cut, and leaves", async () => {
    const line = await server.line();
    const client = await server.online("alice", { webSocket, line });
    const { session } = client.welcome!;
    const states = heard<{ state: string }>((on) => client.on("state", on));
    line.down();
    await until(() => client.connection.failures >= 3);
    line.mend();
    await until(() => client.state === "online");
    expect(client.welcome).toMatchObject({ session, resumed: true });
    client.close();
    expect(states.at(-1)!.state).toBe("closed");
  });
});
