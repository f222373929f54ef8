import { expect, test } from "vitest";
import { type RoomMessage, showMessages } from "../../src/index.js";

function record(seq: number, more: Partial<RoomMessage<string | null>> = {}): RoomMessage<string | null> {
  return { room: "r", seq, id: `m${seq}`, user: "a", name: "A", body: `b${seq}`, at: seq, ref: null, op: null, ...more };
}

const story = [
  record(1),
  record(2),
  record(3, { op: "edit", ref: 1, body: "first edit" }),
  record(4, { op: "edit", ref: 1, body: "second edit" }),
  record(5, { op: "delete", ref: 2, body: null }),
  record(6),
];

test("edits and deletions are applied, and are no messages of their own", () => {
  const shown = showMessages([], story);
  expect(shown.map(({ seq, body, edited, deleted }) => [seq, body, edited, deleted])).toEqual([
    [1, "second edit", true, false],
    [2, null, false, true],
    [6, "b6", false, false],
  ]);
});

test("twice is as once, and nothing new is the same array", () => {
  const shown = showMessages([], story);
  expect(showMessages(shown, story)).toBe(shown);
  expect(showMessages(shown, story.slice(2, 4))).toBe(shown);
});

test("pages of history in front of what came live give the same as all at once", () => {
  const live = showMessages<string | null>([], story.slice(4));
  expect(showMessages(live, story)).toEqual(showMessages([], story));
});

test("only the newest are kept where a limit is given", () => {
  expect(showMessages([], story, 2).map(({ seq }) => seq)).toEqual([2, 6]);
});

test("a message whose author was erased shows that something was said", () => {
  const shown = showMessages([], [record(1)]);
  const after = showMessages(shown, [record(1, { op: "erased", user: "", name: null, body: null })]);
  expect(after).toMatchObject([{ seq: 1, user: "", body: null, deleted: true }]);
});

const react = (seq: number, user: string, reaction: string, op: "react" | "unreact" = "react") =>
  record(seq, { op, ref: 1, user, body: { reaction } as any });
const counts = (shown: readonly { reactions: readonly { reaction: string; count: number; mine: boolean }[] }[]) =>
  shown[0]!.reactions.map(({ reaction, count, mine }) => `${reaction}${count}${mine ? "!" : ""}`);

test("reactions are counted once by number, and are no messages of their own", () => {
  const records = [record(1), react(2, "a", "x"), react(3, "b", "x"), react(4, "b", "y"), react(5, "a", "x", "unreact")];
  const shown = showMessages([], records, Infinity, "b");
  expect([shown.length, counts(shown)]).toEqual([1, ["x1!", "y1!"]]);
  expect(showMessages(shown, records, Infinity, "b")).toBe(shown);
  expect(counts(showMessages(shown, [react(6, "b", "x", "unreact")], Infinity, "b"))).toEqual(["y1!"]);
  expect(counts(showMessages([], records))).toEqual(["x1", "y1"]);
});

test("a page says up to which record it has counted", () => {
  const page = record(1, { reactions: [{ reaction: "x", count: 7, mine: true }], reacted: 5 });
  const shown = showMessages([], [page, react(4, "a", "x"), react(6, "b", "x")], Infinity, "a");
  expect(counts(shown)).toEqual(["x8!"]);
  // An older page brings nothing, a newer one replaces what is counted.
  expect(showMessages(shown, [page])).toBe(shown);
  expect(counts(showMessages(shown, [{ ...page, reactions: [], reacted: 9 }]))).toEqual([]);
});

test("a deleted message has no reactions, and an operation that is not known changes nothing", () => {
  const shown = showMessages([], [record(1), react(2, "a", "x")]);
  expect(showMessages(shown, [record(3, { op: "praise" as any, ref: 1 })])).toBe(shown);
  const deleted = showMessages(shown, [record(4, { op: "delete", ref: 1 }), react(5, "a", "y")]);
  expect([counts(deleted), deleted[0]!.deleted]).toEqual([[], true]);
});
