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
