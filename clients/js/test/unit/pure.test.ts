import { describe, expect, test, vi } from "vitest";
import { Activity, ACTIVITY_MS } from "../../src/activity.js";
import { backoff } from "../../src/backoff.js";
import { Emitter } from "../../src/emitter.js";
import { newKey, validId } from "../../src/ids.js";
import { lastSeenNext, lastSeenText, localStore, type Presence, REASONS, typingText } from "../../src/index.js";
import { Line } from "../../src/line.js";
import { aged, isNewer, merge } from "../../src/people.js";
import { isFinal, reasonFor } from "../../src/reasons.js";
import { claimsOf } from "../../src/tokens.js";
import { Keystrokes, TYPING, Typists } from "../../src/typing.js";
import { ManualClock, tokenUntil } from "./clock.js";

describe("back-off", () => {
  test("is anywhere between nothing and a bound that doubles up to its cap", () => {
    expect([0, 1, 5, 6, 60, 2_000].map((failures) => backoff(failures, null, () => 0.999999))).toEqual(
      [500, 1_000, 16_000, 30_000, 30_000, 30_000].map((bound) => expect.closeTo(bound, -1)),
    );
    expect(backoff(20, null, () => 0)).toBe(0);
  });

  test("takes the server's wish for the least, up to five minutes, and spreads what comes on top", () => {
    expect(backoff(9, 4_000, () => 0)).toBe(4_000);
    expect(backoff(0, 4_000, () => 0.5)).toBe(4_250);
    expect(backoff(0, 86_400_000, () => 0)).toBe(300_000);
    expect(backoff(0, -5, () => 0)).toBe(0);
  });
});

describe("reasons", () => {
  test("4500 to 4999 do not come back, everything else does", () => {
    expect([1000, 1001, 1006, 1011, 4000, 4005, 4499, 5000].some(isFinal)).toBe(false);
    expect([4500, 4505, 4999].every(isFinal)).toBe(true);
  });

  test("every code has words and something to do, those of the future too", () => {
    expect(reasonFor(4321)).toMatchObject({ code: 4321, action: "wait" });
    expect(reasonFor(4987)).toMatchObject({ code: 4987, action: "reload" });
    for (const code of Object.keys(REASONS).map(Number).filter(Number.isFinite)) {
      expect(reasonFor(code).action === "wait").toBe(!isFinal(code));
    }
  });
});

describe("presence", () => {
  const entry = (version: number, more: Partial<Presence> = {}): Presence => ({
    user: "a", name: "A", state: "online", since: 1, last_seen: null, version, status_text: null, mode: "live", ...more,
  });

  test("an older version never replaces a newer one; version 0 says that nothing is known", () => {
    expect(isNewer(entry(3), undefined)).toBe(true);
    expect(isNewer(entry(2), entry(3))).toBe(false);
    expect(isNewer(entry(3), entry(3))).toBe(true);
    expect(isNewer(entry(0), entry(3))).toBe(true);
  });

  test("a change of the same version does not forget the devices of the snapshot, a newer one does", () => {
    const known = entry(3, { devices: ["laptop"] });
    expect(merge(entry(3, { stale: true }), known)).toMatchObject({ stale: true, devices: ["laptop"] });
    expect(merge(entry(4), known).devices).toBeUndefined();
  });

  test("a server that restores lost records makes nobody offline", () => {
    const unknown = entry(0, { state: "offline", stale: true });
    expect(merge(unknown, entry(3))).toMatchObject({ state: "online", version: 3, stale: true });
    expect(merge(entry(0, { state: "idle", stale: true }), entry(3))).toMatchObject({ state: "idle", version: 0 });
    expect(merge(entry(0, { state: "offline" }), entry(3))).toMatchObject({ state: "offline", version: 0 });
    expect(merge(unknown, undefined)).toBe(unknown);
  });

  test("busy is over when its time is, heard of or not", () => {
    const busy = entry(3, { state: "busy", status: "busy", until: 1_000, status_text: "writing" });
    expect(aged(busy, 999)).toBe(busy);
    expect(aged(busy, 1_000)).toMatchObject({ state: "online", status: "auto", until: null, status_text: null, version: 3 });
    expect(aged(entry(3, { state: "offline", status: "invisible", until: 1_000 }), 1_000).state).toBe("offline");
  });
});

describe("a line of records", () => {
  const records = (...numbers: number[]) => numbers.map((seq) => ({ seq }));

  test("lets each through once and in order, and holds what is early", () => {
    const line = new Line<{ seq: number }>(10);
    expect(records(11, 11, 10, 12).map((record) => line._offer(record))).toEqual([true, false, false, true]);
    expect(line._behind).toBe(false);
    expect(records(15, 14).map((record) => line._offer(record))).toEqual([false, false]);
    expect([line._behind, line.last, line._target(12)]).toEqual([true, 12, 13]);
    expect(line._fetched({ seq: 13 })).toBe(true);
    expect([line.next(), line.next(), line.next()]).toEqual([{ seq: 14 }, { seq: 15 }, undefined]);
    line._settle();
    expect([line._behind, line.last]).toEqual([false, 15]);
  });

  test("goes on fetching what was missed while it fetched", () => {
    const line = new Line<{ seq: number }>(0);
    line._miss();
    line._miss();
    line._settle();
    expect(line._behind).toBe(true);
    line._settle();
    expect(line._behind).toBe(false);
  });

  test("holds a thousand, and fetches the rest", () => {
    const line = new Line<{ seq: number }>(0);
    for (let seq = 2; seq < 1_200; seq++) line._offer({ seq });
    line._fetched({ seq: 1 });
    while (line.next());
    line._settle();
    expect([line.last, line._behind]).toEqual([1_001, true]);
  });
});

describe("typing", () => {
  test("a person who types without end is announced every 3 s, from the first key on", async () => {
    const clock = new ManualClock();
    const said: string[] = [];
    const keys = new Keystrokes(clock, (type) => (said.push(type), true), () => TYPING);
    for (let ms = 0; ms < 9_500; ms += 100) {
      keys.typing(true);
      await clock.pass(100);
    }
    expect(said).toEqual(Array(4).fill("typing.start"));
    keys.typing(false);
    keys.typing(false);
    expect(said.at(-1)).toBe("typing.stop");
    expect(said).toHaveLength(5);
  });

  test("what is begun right after a message is announced as soon as the server lets it through", async () => {
    const clock = new ManualClock();
    const said: number[] = [];
    const began = clock.now();
    const keys = new Keystrokes(clock, () => said.push(clock.now() - began) > 0, () => TYPING);
    keys.typing(true);
    await clock.pass(500);
    keys.ended();
    keys.typing(true);
    await clock.pass(200);
    keys.typing(true);
    await clock.pass(5_000);
    expect(said).toEqual([0, 2_100]);
    keys.ended(true);
    expect(clock.timers).toBe(0);
  });

  test.each([
    [2_333, 3_000, 2_000],
    [667, 1_000, 500],
    [11_333, 30_000, 2_000],
  ])("repeats every %i ms where the server holds a start for %i ms and drops others for %i ms", async (...times) => {
    const [repeat_ms, hold_ms, throttle_ms] = times;
    const clock = new ManualClock();
    const said: number[] = [];
    const keys = new Keystrokes(clock, () => said.push(clock.now()) > 0, () => ({ repeat_ms, hold_ms, throttle_ms }));
    for (let ms = 0; ms < 5 * hold_ms; ms += 100) {
      keys.typing(true);
      await clock.pass(100);
    }
    const gaps = said.slice(1).map((at, index) => at - said[index]!);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(throttle_ms);
    expect(Math.max(...gaps)).toBeLessThan(hold_ms);
    keys.ended();
    keys.typing(true);
    await clock.pass(throttle_ms + 100);
    expect(said.at(-1)! - said.at(-2)!).toBeLessThanOrEqual(throttle_ms + 200);
  });

  test("is repeated at once if the clock was set back", () => {
    let now = 1_800_000_000_000;
    const said = vi.fn(() => true);
    const keys = new Keystrokes({ now: () => now, after: () => () => {} }, said, () => TYPING);
    keys.typing(true);
    now -= 3_600_000;
    keys.typing(true);
    keys.typing(true);
    expect(said).toHaveBeenCalledTimes(2);
  });

  test("what could not be said is said with the next key", () => {
    let online = false;
    const said = vi.fn(() => online);
    const keys = new Keystrokes(new ManualClock(), said, () => TYPING);
    keys.typing(true);
    online = true;
    keys.typing(true);
    keys.typing(true);
    expect(said).toHaveBeenCalledTimes(2);
  });

  test("a typer of whom nothing more is heard is gone a second after their time", async () => {
    const clock = new ManualClock();
    const changed = vi.fn();
    const typists = new Typists(clock, changed);
    typists._started({ user: "a", name: "Ann" }, 5_000);
    await clock.pass(3_000);
    typists._started({ user: "a", name: "Ann" }, 5_000); // goes on: nothing to show anew
    expect(changed).toHaveBeenCalledTimes(1);
    await clock.pass(5_999);
    expect(typists.typers).toEqual([{ user: "a", name: "Ann" }]);
    await clock.pass(1);
    expect([typists.typers, typists.count]).toEqual([[], 0]);
    typists._counted(7, 5_000);
    expect(typists.count).toBe(7);
    await clock.pass(6_000);
    expect([typists.count, clock.timers]).toEqual([0, 0]);
  });

  test("words for none, one, two, several, and for those without a name", () => {
    expect(typingText([])).toBe("");
    expect(typingText(["Alice"])).toBe("Alice is typing…");
    expect(typingText(["Alice", "Bob"])).toBe("Alice and Bob are typing…");
    expect(typingText(["Alice", "Bob", "Carol"])).toBe("several people are typing…");
    expect(typingText([], 1)).toBe("someone is typing…");
    expect(typingText(["Alice"], 2)).toBe("2 people are typing…");
    expect(typingText([], 5_000)).toBe("several people are typing…");
  });

  test("words of another language, with its plurals", () => {
    const words = {
      one: "{0} pisze…",
      two: "{0} i {1} piszą…",
      several: { few: "{n} osoby piszą…", many: "{n} osób pisze…", other: "{n} osoby pisze…" },
      some: { one: "ktoś pisze…", other: "{n} osoby piszą…" },
    };
    const polish = { locale: "pl", words };
    expect([1, 2, 3, 5].map((count) => typingText([], count, polish))).toEqual([
      "ktoś pisze…", "2 osoby piszą…", "3 osoby piszą…", "5 osób pisze…",
    ]);
    expect(typingText(["Ala"], 1, polish)).toBe("Ala pisze…");
  });

  test("a name that looks like a placeholder, or like what replace() takes for one, stays a name", () => {
    expect(typingText(["{1}", "$&"])).toBe("{1} and $& are typing…");
  });
});

describe("last seen", () => {
  const now = 1_800_000_000_000;
  const ago = (ms: number) => lastSeenText(now - ms, now);

  test("in words, and in those of a language", () => {
    expect([0, 59_999, -5_000].map(ago)).toEqual(["just now", "just now", "just now"]);
    expect([60_000, 300_000, 3_600_000, 2 * 86_400_000, 40 * 86_400_000, 800 * 86_400_000].map(ago)).toEqual([
      "1 minute ago", "5 minutes ago", "1 hour ago", "2 days ago", "1 month ago", "2 years ago",
    ]);
    expect(lastSeenText(now - 300_000, now, { locale: "de" })).toBe("vor 5 Minuten");
    expect(lastSeenText(null, now)).toBe("");
  });

  test("it is known when the words change", () => {
    for (const passed of [-3_000, 0, 30_000, 60_000, 119_999, 3_599_999, 3_600_000, 86_399_999, 29.5 * 86_400_000, 364 * 86_400_000]) {
      const next = lastSeenNext(now - passed, now)!;
      const at = (later: number) => lastSeenText(now - passed, now + later);
      expect(at(next - 1)).toBe(at(0));
      expect(at(next)).not.toBe(at(0));
    }
    expect(lastSeenNext(null, now)).toBeNull();
  });
});

test("activity is told at once, then at most every 15 s, and the last of it is not forgotten", async () => {
  const clock = new ManualClock();
  const began = clock.now();
  const said: number[] = [];
  const activity = new Activity(clock, () => said.push(clock.now() - began) > 0);
  for (let ms = 0; ms < 20_000; ms += 1_000) {
    activity.active();
    await clock.pass(1_000);
  }
  await clock.pass(60_000);
  expect(said).toEqual([0, ACTIVITY_MS, 2 * ACTIVITY_MS]);
  expect(clock.timers).toBe(0);
});

describe("listeners", () => {
  test("one that throws harms no other, one that was undone is not called, the same one may listen twice", () => {
    const failed = vi.fn();
    const emitter = new Emitter<{ word: string }>(failed, { word: 1 });
    const heard: string[] = [];
    const listener = (word: string) => void heard.push(word);
    emitter.on("word", () => {
      throw new Error("mine");
    });
    const undo = emitter.on("word", listener);
    const undoSecond = emitter.on("word", listener);
    emitter.on("word", () => undoLast());
    const undoLast = emitter.on("word", () => heard.push("never"));
    emitter.emit("word", "a");
    undo();
    undo();
    emitter.emit("word", "b");
    undoSecond();
    emitter.emit("word", "c");
    expect(heard).toEqual(["a", "a", "b"]);
    expect(failed).toHaveBeenCalledTimes(3);
  });
});

describe("tokens", () => {
  test("say whose they are and when they end; what is no token says nothing", () => {
    expect(claimsOf(tokenUntil(1_800_000_000_000, "älice?>"))).toMatchObject({ _expiresAt: 1_800_000_000_000 });
    expect(claimsOf(tokenUntil(5_000, "bob"))._owner).toBe("/bob");
    for (const odd of ["", "x", "a.b.c", `a.${btoa("[]")}.c`, `a.${btoa('{"exp":"soon"}')}.c`]) {
      expect(claimsOf(odd)._expiresAt).toBeNull();
    }
  });
});

test("ids are as the server takes them, keys are ids of their own", () => {
  for (const id of ["a", "_", "a.b@c=d+e-f", "x".repeat(128)]) expect(validId("user", id)).toBe(id);
  for (const id of ["", "-a", ".a", "a b", "ä", "x".repeat(129), null as any]) expect(() => validId("user", id)).toThrow(/valid id/);
  expect(validId("key", newKey())).not.toBe(newKey());
});

test("localStore keeps under its prefix", () => {
  const kept = new Map<string, string>();
  const storage = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value) };
  const store = localStore("app:", storage);
  store.set("device", "x");
  expect([...kept]).toEqual([["app:device", "x"]]);
  expect(store.get("device")).toBe("x");
});
