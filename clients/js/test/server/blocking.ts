// A proxy that passes HTTP and refuses upgrades, as some networks do. It can lose answers, hold responses and allow upgrades.

import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";

export class BlockingProxy {
  port = 0;
  /** Upgrades that were asked for. */
  upgrades = 0;
  /** Streams that were opened. */
  streams = 0;
  /** Requests with commands. */
  posts = 0;
  /** Whether upgrades pass. */
  passes = false;
  /** Whether an upgrade gets no answer, instead of a refusal. */
  ignores = false;
  /** Number of requests with commands whose answers are lost. */
  losing = 0;
  /** Bytes of a response that are held back until more come, as in a buffer of a proxy. */
  buffer = 0;
  #server: Server;
  #target: () => number;
  #sockets = new Set<Socket>();

  private constructor(target: () => number) {
    this.#target = target;
    this.#server = createServer((incoming, outgoing) => this.#pass(incoming, outgoing));
    this.#server.on("upgrade", (incoming, socket, head) => this.#upgrade(incoming, socket, head));
    this.#server.on("connection", (socket) => this.#sockets.add(socket));
  }

  /** Start in front of a server, whose port may change. */
  static async before(target: () => number): Promise<BlockingProxy> {
    const proxy = new BlockingProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.port = (proxy.#server.address() as AddressInfo).port;
    return proxy;
  }

  get url(): string {
    return `ws://127.0.0.1:${this.port}`;
  }

  /** Reset every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
    this.#sockets.clear();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #pass(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const isPost = incoming.method === "POST";
    if (isPost) this.posts += 1;
    else this.streams += 1;
    const isLost = isPost && this.losing > 0;
    if (isLost) this.losing -= 1;
    const { method, url: path, headers } = incoming;
    const passed = request({ port: this.#target(), host: "127.0.0.1", method, path, headers, agent: false }, (answer) => {
      if (isLost) return void outgoing.destroy();
      outgoing.writeHead(answer.statusCode!, answer.headers);
      this.#copy(answer, outgoing);
    });
    passed.on("error", () => outgoing.destroy());
    outgoing.on("close", () => passed.destroy());
    incoming.pipe(passed);
  }

  #copy(answer: IncomingMessage, outgoing: ServerResponse): void {
    outgoing.flushHeaders();
    let held = Buffer.alloc(0);
    answer.on("data", (part: Buffer) => {
      held = Buffer.concat([held, part]);
      const whole = this.buffer ? held.length - (held.length % this.buffer) : held.length;
      if (whole) outgoing.write(held.subarray(0, whole));
      held = held.subarray(whole);
    });
    answer.on("end", () => outgoing.end(held));
    answer.on("error", () => outgoing.destroy());
  }

  #upgrade(incoming: IncomingMessage, near: Duplex, head: Buffer): void {
    this.upgrades += 1;
    near.on("error", () => {});
    if (this.ignores) return;
    if (!this.passes) return void near.end("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    const far = connect(this.#target(), "127.0.0.1");
    far.on("error", () => near.destroy());
    far.write(`GET ${incoming.url} HTTP/1.1\r\n`);
    for (let at = 0; at < incoming.rawHeaders.length; at += 2) {
      far.write(`${incoming.rawHeaders[at]}: ${incoming.rawHeaders[at + 1]}\r\n`);
    }
    far.write("\r\n");
    far.write(head);
    near.pipe(far).pipe(near);
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  }
}
