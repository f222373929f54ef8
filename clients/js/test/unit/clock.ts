// Time that passes when the test says so, and a server that says what the test wants.

import type { Clock, Page, Socket } from "../../src/index.js";

export class ManualClock implements Clock {
  #now = 1_800_000_000_000;
  #timers: { at: number; call: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, call: () => void): () => void {
    const timer = { at: this.#now + ms, call };
    this.#timers.push(timer);
    return () => void (this.#timers = this.#timers.filter((other) => other !== timer));
  }

  get timers(): number {
    return this.#timers.length;
  }

  /** Let time pass, timer by timer, and what follows from each. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      await settled();
      const next = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.#timers = this.#timers.filter((other) => other !== next);
      this.#now = Math.max(this.#now, next.at);
      next.call();
    }
    this.#now = end;
    await settled();
  }

  /** The computer sleeps: time passes, and no timer runs. */
  sleep(ms: number): void {
    this.#now += ms;
  }
}

/** Everything that waits for nothing but its turn has had it. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 30; turn++) await Promise.resolve();
}

/** A socket whose other end is the test. */
export class FakeSocket implements Socket {
  static all: FakeSocket[] = [];
  static get last(): FakeSocket {
    return FakeSocket.all.at(-1)!;
  }

  readyState = 0;
  sent: any[] = [];
  closed = false;
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;

  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.readyState = 3;
    this.closed = true;
  }

  // What the server does

  open(): void {
    this.readyState = 1;
    this.onopen?.({});
  }

  say(frame: object): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  event(type: string, data: object = {}): void {
    this.say({ type, v: 1, ts: 0, data });
  }

  /** With `inbox` null the client's question where the inbox stands is left open. */
  welcome(data: object = {}, now = 1_800_000_000_000, inbox: object | null = { notifications: [], head: 0, unread: 0, unseen: 0 }): void {
    this.open();
    const limits = { frame_bytes: 65_536, commands_per_s: 0, watches: 0, rooms: 0 };
    const welcome = { session: "s1", user: "me", tenant: "default", node: "n", resumed: false, heartbeat_s: 30 };
    this.event("welcome", { ...welcome, server_time: now, unread: 0, limits, rooms: {}, ...data });
    if (inbox) this.answer("inbox.list", inbox);
  }

  /** Answer the last command of this type. */
  answer(type: string, data: object): void {
    this.say({ type: "reply", id: this.command(type)!.id, data });
  }

  refuse(type: string, error: object): void {
    this.say({ type: "error", id: this.command(type)!.id, message: "no", retry: false, ...error });
  }

  command(type: string): any {
    return this.sent.filter((command) => command.type === type).at(-1);
  }

  count(type: string): number {
    return this.sent.filter((command) => command.type === type).length;
  }

  /** An error and no close, as undici reports a connection that was refused. */
  fail(): void {
    this.onerror?.({});
  }

  end(code: number, reason = ""): void {
    this.readyState = 3;
    this.onclose?.({ code, reason });
  }
}

/** A page whose signs the test gives. */
export class FakePage implements Page {
  online = true;
  visible = true;
  listeners = new Map<string, Set<() => void>>();
  isOnline = () => this.online;
  isVisible = () => this.visible;

  tell(sign: Parameters<Page["on"]>[0]): void {
    for (const call of [...(this.listeners.get(sign) ?? [])]) call();
  }

  get listening(): number {
    return [...this.listeners.values()].reduce((sum, { size }) => sum + size, 0);
  }

  on(sign: string, call: () => void): () => void {
    const calls = this.listeners.get(sign) ?? new Set();
    this.listeners.set(sign, calls.add(call));
    return () => void calls.delete(call);
  }
}

/** A token that ends at a time, in milliseconds. */
export function tokenUntil(expiresAt: number, sub = "me"): string {
  const payload = btoa(JSON.stringify({ sub, exp: expiresAt / 1000 }));
  return `e30.${payload.replace(/=+$/, "").replace(/\+/g, "-").replace(/\//g, "_")}.x`;
}
