// A way to the server that fails as load balancers and networks do, by a list of faults.

import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/**
 * Fault of one request:
 *
 * - an answer, which the server does not get to see the request for
 * - `lost`: the server carries out the request, and its answer is lost
 * - `cut`: the connection is reset before the server gets the request
 * - `silent`: nothing answers
 */
export type Fault = { status: number; headers?: Record<string, string>; body?: string } | "lost" | "cut" | "silent";

export class Proxy {
  /** Requests so far, such as `POST /v1/notifications`, and their bodies. */
  requests: string[] = [];
  bodies: string[] = [];
  /** Faults of the next requests. Requests without one pass. */
  faults: Fault[] = [];
  #server: Server;

  private constructor(target: number) {
    this.#server = createServer((from, to) => void this.#serve(from, to, target));
  }

  static async to(target: number): Promise<Proxy> {
    const proxy = new Proxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Forget the requests of earlier tests. The next requests have these faults. */
  next(...faults: Fault[]): void {
    [this.requests, this.bodies, this.faults] = [[], [], faults];
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #serve(from: IncomingMessage, to: ServerResponse, target: number): Promise<void> {
    const fault = this.faults.shift();
    const body = Buffer.concat(await from.toArray());
    this.requests.push(`${from.method} ${from.url}`);
    this.bodies.push(body.toString());
    if (fault === "silent") return;
    if (fault === "cut") return void from.socket.resetAndDestroy();
    if (typeof fault === "object") return void to.writeHead(fault.status, fault.headers).end(fault.body);
    const { host: _, connection: __, ...headers } = from.headers;
    const forwarded = request({ host: "127.0.0.1", port: target, method: from.method!, path: from.url!, headers, agent: false }, (answer) => {
      if (fault === "lost") answer.resume().on("end", () => from.socket.resetAndDestroy());
      else answer.pipe(to.writeHead(answer.statusCode!, answer.headers));
    });
    forwarded.on("error", () => from.socket.destroy()).end(body);
  }
}
