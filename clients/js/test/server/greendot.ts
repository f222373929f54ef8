// A real `greendot serve --dev` in a process of its own, tokens signed with its secret, and a line to it that can be cut.

import { type ChildProcess, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, connect, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { WebSocket } from "ws";
import { Greendot, type GreendotOptions } from "../../src/index.js";

const SECRET = "a secret for the tests of the JavaScript client";
const KEY = "an API key for the tests of the JavaScript client";
const ROOT = fileURLToPath(new URL("../../../..", import.meta.url));
const PYTHON = process.env["GREENDOT_PYTHON"] ?? join(ROOT, ".venv/bin/python"); // as `make` makes it
// The socket of tests/forked.py, where all of the project's tests run: a server that is forked takes a tenth of the time.
const FORKS = process.env["GREENDOT_FORKS"];
const READY_MS = 20_000;

export class GreendotServer {
  port = 0;
  #process: ChildProcess | null = null;
  #pid = 0; // of the server itself, which is not the process if that has it forked
  #folder = mkdtempSync(join(tmpdir(), "greendot-js-"));
  #clients: Greendot[] = [];
  #lines: Line[] = [];
  #settings: Record<string, string>;

  private constructor(settings: Record<string, string>) {
    this.#settings = settings;
  }

  /** Settings are names of the environment without `GREENDOT_`: `{ PRESENCE_GRACE_S: "1" }`. */
  static async start(settings: Record<string, string> = {}): Promise<GreendotServer> {
    const server = new GreendotServer(settings);
    try {
      await server.up();
    } catch (error) {
      await server.stop(); // nothing stays behind, neither a process nor its files
      throw error;
    }
    return server;
  }

  /** Start the process; after `down` on the same port, with the same data. */
  async up(): Promise<void> {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("GREENDOT_"));
    const given = Object.entries({ AUTH_SECRET: SECRET, API_KEY: KEY, SERVER_DATA_DIR: this.#folder, ...this.#settings });
    const env = {
      ...Object.fromEntries(inherited),
      ...Object.fromEntries(given.map(([name, value]) => [`GREENDOT_${name}`, value])),
      PYTHONPATH: join(ROOT, "src"),
      PYTHONUNBUFFERED: "1",
    };
    const greendot = FORKS ? ["-I", "-S", join(ROOT, "tests/forked.py"), "--pid", FORKS] : ["-m", "greendot"];
    const child = spawn(PYTHON, [...greendot, "serve", "--dev", "--port", String(this.port)], { cwd: this.#folder, env });
    this.#process = child;
    let said = "";
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the server did not start: ${said}`)), READY_MS);
      const read = (part: Buffer) => {
        said += part;
        if (!said.includes("Stop with Ctrl-C") || (FORKS && !/^pid \d+$/m.test(said))) return;
        clearTimeout(timer);
        resolve();
      };
      child.stdout!.on("data", read);
      child.stderr!.on("data", read);
      child.on("error", reject);
      child.on("exit", () => reject(new Error(`the server ended: ${said}`)));
    });
    this.port = Number(/:(\d+)\/v1\/connect/.exec(said)![1]);
    this.#pid = FORKS ? Number(/^pid (\d+)$/m.exec(said)![1]) : child.pid!;
  }

  /** SIGTERM lets it say `drain`, SIGKILL nothing. */
  async down(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const child = this.#process!;
    if (child.pid && child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      process.kill(this.#pid || child.pid, signal);
      await ended;
    }
  }

  async stop(): Promise<void> {
    this.reset();
    if (this.#process) await this.down("SIGKILL");
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** End the clients and lines of one test. */
  reset(): void {
    for (const client of this.#clients.splice(0)) client.close();
    for (const line of this.#lines.splice(0)) line.close();
  }

  get url(): string {
    return `ws://127.0.0.1:${this.port}`;
  }

  /** A client that is closed with the test, over `line` if there is one. */
  client(user: string, options: Partial<GreendotOptions> & { line?: Line } = {}): Greendot {
    const { line, ...rest } = options;
    const client = new Greendot({
      url: line ? `ws://127.0.0.1:${line.port}` : this.url,
      getToken: () => this.token(user),
      webSocket: WebSocket as any,
      backoff: { baseMs: 50, capMs: 500 },
      ...rest,
    });
    this.#clients.push(client);
    return client;
  }

  async online(user: string, options: Partial<GreendotOptions> & { line?: Line } = {}): Promise<Greendot> {
    const client = this.client(user, options);
    client.connect();
    await until(() => client.state === "online");
    return client;
  }

  token(user: string, claims: Record<string, unknown> = {}): string {
    const now = Math.floor(Date.now() / 1000);
    return signed({ sub: user, name: user[0]!.toUpperCase() + user.slice(1), iat: now, exp: now + 3600, ...claims });
  }

  async devToken(user: string): Promise<string> {
    const answer = await fetch(`http://127.0.0.1:${this.port}/dev/token?user=${user}`);
    return ((await answer.json()) as { token: string }).token;
  }

  /** The HTTP API, as an app's backend uses it. */
  async http(method: string, path: string, body?: unknown): Promise<any> {
    const answer = await fetch(`http://127.0.0.1:${this.port}${path}`, {
      method,
      headers: { authorization: `Bearer ${KEY}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  async line(): Promise<Line> {
    const line = await Line.to(this.port);
    this.#lines.push(line);
    return line;
  }
}

/** A way to the server that can be cut, or go silent. */
export class Line {
  port = 0;
  /** Connections that were ever made over it. */
  made = 0;
  #server: Server;
  #sockets = new Set<Socket>();
  #isSilent = false;
  #isDown = false;

  private constructor(target: number) {
    this.#server = createServer((near) => this.#joined(near, connect(target, "127.0.0.1")));
  }

  static async to(target: number): Promise<Line> {
    const line = new Line(target);
    await new Promise<void>((resolve) => line.#server.listen(0, "127.0.0.1", resolve));
    line.port = (line.#server.address() as AddressInfo).port;
    return line;
  }

  /** Reset every connection: no close frame, to neither side. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
    this.#sockets.clear();
  }

  /** Cut, and let nobody through until `mend`. */
  down(): void {
    this.#isDown = true;
    this.cut();
  }

  mend(): void {
    this.#isDown = this.#isSilent = false;
  }

  /** Let nothing through, as if packets were lost. */
  silence(): void {
    this.#isSilent = true;
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #joined(near: Socket, far: Socket): void {
    this.made += 1;
    for (const [from, to] of [[near, far], [far, near]] as const) {
      this.#sockets.add(from);
      from.on("data", (data) => this.#isSilent || to.write(data));
      from.on("error", () => {});
      from.on("close", () => to.destroy());
    }
    if (this.#isDown) this.cut();
  }
}

function signed(claims: object): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${text}.${createHmac("sha256", SECRET).update(text).digest("base64url")}`;
}

/** Wait for something; fails if it does not become true. */
export async function until(condition: () => boolean, withinMs = 8_000): Promise<void> {
  const end = Date.now() + withinMs;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`not within ${withinMs} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Everything a listener was called with. */
export function heard<T>(on: (listener: (event: T) => void) => unknown): T[] {
  const all: T[] = [];
  on((event) => all.push(event));
  return all;
}
