// The messages of a room to show, with edits, deletions and reactions applied.

import type { Reaction, RoomMessage } from "./wire.js";

/** Message with edits, deletions and reactions applied. */
export interface ShownMessage<Body = unknown> extends RoomMessage<Body> {
  edited: boolean;
  /** Whether the message was deleted or its author erased. `body` is then null. */
  deleted: boolean;
  /** Number of the edit or deletion applied last. */
  changed: number;
  reactions: readonly Reaction[];
  /** Number of the record up to which `reactions` are counted. */
  reacted: number;
}

/**
 * Merge `records` into `shown`, in any order and any number of times. Returns the messages sorted, each once, with edits,
 * deletions and reactions applied. Returns the same array if nothing changed. `limit` keeps only the newest messages.
 * Reactions of `user` are `mine`.
 */
export function showMessages<Body>(
  shown: readonly ShownMessage<Body>[],
  records: readonly RoomMessage<Body>[],
  limit = Infinity,
  user: string | null = null,
): readonly ShownMessage<Body>[] {
  const bySeq = new Map(shown.map((message) => [message.seq, message]));
  let news = false;
  const put = (message: ShownMessage<Body>) => {
    news = true;
    bySeq.set(message.seq, message);
  };
  // Ascending order: a message comes before its edit.
  for (const record of [...records].sort((a, b) => a.seq - b.seq)) {
    const { seq, op, reactions = [], reacted = seq } = record;
    const erased = op === "erased";
    const known = bySeq.get(record.ref ?? seq);
    if (record.ref === null) {
      if (!known || (erased && !known.deleted)) {
        put({ ...record, edited: false, deleted: erased, changed: known?.changed ?? 0, reactions, reacted });
      } else if (reacted > known.reacted) put({ ...known, reactions, reacted });
    } else if (known && !known.deleted) {
      if (op === "react" || op === "unreact") {
        if (seq > known.reacted) put({ ...known, reactions: counted(known.reactions, record, user), reacted: seq });
      } else if (seq > known.changed) {
        if (op === "delete") put({ ...known, body: null as Body, deleted: true, changed: seq, reactions: [] });
        else if (op === "edit") put({ ...known, body: record.body, edited: true, changed: seq });
      }
    }
  }
  return news ? [...bySeq.values()].sort((a, b) => a.seq - b.seq).slice(-limit) : shown;
}

/** Return `reactions` with a record applied. */
function counted(reactions: readonly Reaction[], { op, body, user }: RoomMessage<any>, me: string | null): Reaction[] {
  const { reaction } = body;
  const by = op === "react" ? 1 : -1;
  const known = reactions.find((one) => one.reaction === reaction) ?? { reaction, count: 0, mine: false };
  const next = { reaction, count: known.count + by, mine: user === me ? by > 0 : known.mine };
  const changed = reactions.map((one) => (one === known ? next : one));
  return (reactions.includes(known) ? changed : [...changed, next]).filter(({ count }) => count > 0);
}
