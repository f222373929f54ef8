// The messages of a room to show, with edits and deletions applied.

import type { RoomMessage } from "./wire.js";

/** Message with edits and deletions applied. */
export interface ShownMessage<Body = unknown> extends RoomMessage<Body> {
  edited: boolean;
  /** Whether the message was deleted or its author erased. `body` is then null. */
  deleted: boolean;
  /** Number of the edit or deletion applied last. */
  changed: number;
}

/**
 * Merge `records` into `shown`, in any order and any number of times. Returns the messages sorted, each once, with edits
 * and deletions applied. Returns the same array if nothing changed. `limit` keeps only the newest messages.
 */
export function showMessages<Body>(
  shown: readonly ShownMessage<Body>[],
  records: readonly RoomMessage<Body>[],
  limit = Infinity,
): readonly ShownMessage<Body>[] {
  const bySeq = new Map(shown.map((message) => [message.seq, message]));
  let news = false;
  const put = (message: ShownMessage<Body>) => {
    news = true;
    bySeq.set(message.seq, message);
  };
  // Ascending order: a message comes before its edit.
  for (const record of [...records].sort((a, b) => a.seq - b.seq)) {
    const erased = record.op === "erased";
    if (record.ref === null) {
      const known = bySeq.get(record.seq);
      if (!known) put({ ...record, edited: false, deleted: erased, changed: 0 });
      else if (erased && !known.deleted) put({ ...record, edited: false, deleted: true, changed: known.changed });
    } else {
      const known = bySeq.get(record.ref);
      if (!known || known.deleted || known.changed >= record.seq || erased) continue;
      if (record.op === "delete") put({ ...known, body: null as Body, deleted: true, changed: record.seq });
      else put({ ...known, body: record.body, edited: true, changed: record.seq });
    }
  }
  return news ? [...bySeq.values()].sort((a, b) => a.seq - b.seq).slice(-limit) : shown;
}
